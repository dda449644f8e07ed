#include "options/option_kinds.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/file.h"

namespace triforce {

OptionValue methods() {
  const std::string listed = method_names();
  std::vector<std::string> known;
  for (const std::string_view name : split_list(listed)) {
    known.emplace_back(name.substr(name.find_first_not_of(' ')));
  }
  known.emplace_back("auto");
  return {fmt::format("auto, or a comma list of {}, each at most once", method_names()),
          [](RunConfig& c, std::string_view text) {
            c.methods.clear();
            c.auto_method = text == "auto";
            if (c.auto_method) return true;
            for (const std::string_view name : split_list(text)) {
              const std::optional<Method> m = parse_method(name);
              if (!m || std::ranges::count(c.methods, *m) > 0) return false;
              c.methods.push_back(*m);
            }
            return true;
          },
          [](const RunConfig& c) -> ParamValue {
            if (c.auto_method) return std::vector<std::string>{"auto"};
            std::vector<std::string> names;
            for (const Method m : c.methods) names.emplace_back(to_string(m));
            return names;
          },
          false,
          std::move(known),
          true};
}

OptionValue rebuild_policy() {
  using Kind = RebuildPolicy::Kind;
  return {"never, every:N (N of at least 1), adaptive:RATE (RATE in (0, 1]) or token",
          [](RunConfig& c, std::string_view text) {
            const std::size_t colon = std::min(text.find(':'), text.size());
            const std::string_view word = text.substr(0, colon);
            const std::string_view number = text.substr(std::min(text.size(), colon + 1));
            RebuildPolicy& p = c.speculation.rebuild;
            p = {};
            if (word == "every") {
              p = {Kind::kEvery, parse_integer(number).value_or(0), 0};
              return p.every_tokens >= 1;
            }
            if (word == "adaptive") {
              p = {Kind::kAdaptive, 0, parse_real(number).value_or(0)};
              return p.below_rate > 0 && p.below_rate <= 1;
            }
            if (text == "token") p.kind = Kind::kToken;
            return text == "never" || text == "token";
          },
          [](const RunConfig& c) -> ParamValue {
            const RebuildPolicy& p = c.speculation.rebuild;
            if (p.kind == Kind::kEvery) return fmt::format("every:{}", p.every_tokens);
            if (p.kind == Kind::kAdaptive) return fmt::format("adaptive:{}", p.below_rate);
            return std::string(p.kind == Kind::kToken ? "token" : "never");
          },
          true};
}

OptionValue lookup() {
  static constexpr std::string_view kLimited = "ngram:";
  return {fmt::format("suffix or ngram:N, N an integer in 1..{}", kMaxTokens),
          [](RunConfig& c, std::string_view text) {
            std::int64_t& longest = c.speculation.lookup.longest;
            longest = 0;
            if (!text.starts_with(kLimited)) return text == "suffix";
            longest = parse_integer(text.substr(kLimited.size())).value_or(0);
            return longest >= 1 && longest <= kMaxTokens;
          },
          [](const RunConfig& c) -> ParamValue {
            const std::int64_t longest = c.speculation.lookup.longest;
            return longest == 0 ? std::string("suffix") : fmt::format("{}{}", kLimited, longest);
          },
          true};
}

std::string yarn_text(const RopeScaling& scaling) {
  return fmt::format("yarn:{}:{}", scaling.factor, scaling.original_max_position);
}

OptionValue rope_scaling() {
  return {fmt::format("yarn:FACTOR:LENGTH, a number from 1 to {:.0f} and an integer in 1..{}",
                      kMaxRopeFactor, kMaxPositions),
          [](RunConfig& c, std::string_view text) {
            c.rope_scaling.reset();
            if (!text.starts_with("yarn:")) return false;
            text.remove_prefix(5);
            const std::size_t colon = text.find(':');
            if (colon == std::string_view::npos) return false;
            const auto factor = parse_real(text.substr(0, colon));
            const auto length = parse_integer(text.substr(colon + 1));
            if (!factor || !(*factor >= 1 && *factor <= kMaxRopeFactor) || !length || *length < 1 ||
                *length > kMaxPositions) {
              return false;
            }
            RopeScaling& scaling = c.rope_scaling.emplace();
            scaling.kind = RopeScaling::Kind::kYarn;
            scaling.factor = *factor;
            scaling.original_max_position = *length;
            return true;
          },
          [](const RunConfig& c) -> ParamValue {
            if (!c.rope_scaling) return std::monostate{};
            return yarn_text(*c.rope_scaling);
          },
          true};
}

OptionValue device_name() {
  return {"auto, cpu, cuda or cuda:N",
          [](RunConfig& c, std::string_view text) {
            c.device = std::string(text);
            if (text.substr(0, 5) == "cuda:")
              return parse_integer(text.substr(5)).value_or(-1) >= 0;
            return text == "auto" || text == "cpu" || text == "cuda";
          },
          [](const RunConfig& c) -> ParamValue { return c.device; },
          true,
          {"auto", "cpu", "cuda"}};
}

OptionValue byte_count() {
  return {
      "a byte count of at least 1, with k, M, G or T (powers of 1024), or KB, MB, GB, TB (of "
      "1000)",
      [](RunConfig& c, std::string_view text) {
        c.memory_limit_bytes = parse_bytes(text).value_or(0);
        return c.memory_limit_bytes >= 1;
      },
      [](const RunConfig& c) -> ParamValue {
        if (c.memory_limit_bytes == 0) return std::monostate{};
        return c.memory_limit_bytes;
      },
      true,
      {},
      false,
      parse_bytes};
}

OptionValue records() {
  using Member = bool RecordOptions::*;
  static constexpr std::array<std::pair<std::string_view, Member>, 4> kNames = {{
      {"tokens", &RecordOptions::tokens},
      {"chunks", &RecordOptions::chunks},
      {"probs", &RecordOptions::probs},
      {"acceptance-vector", &RecordOptions::acceptance_vector},
  }};
  return {"a comma list of tokens, chunks, probs, acceptance-vector, each at most once",
          [](RunConfig& c, std::string_view text) {
            c.record = {};
            for (const std::string_view name : split_list(text)) {
              const auto it = std::ranges::find_if(
                  kNames, [&](const auto& known) { return known.first == name; });
              if (it == kNames.end() || c.record.*it->second) return false;
              c.record.*it->second = true;
            }
            return true;
          },
          [](const RunConfig& c) -> ParamValue {
            if (!c.record.any()) return std::monostate{};
            std::vector<std::string> names;
            for (const auto& [name, member] : kNames) {
              if (c.record.*member) names.emplace_back(name);
            }
            return names;
          },
          false,
          {"tokens", "chunks", "probs", "acceptance-vector"},
          true};
}

std::string parents_text(std::span<const std::int16_t> parents) {
  return fmt::format("[{}]", fmt::join(parents, ", "));
}

std::optional<AcceptanceVector> vector_of_file(std::string_view path) {
  constexpr std::int64_t kMaxBytes = 1 << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  const std::string text = read_file(path, kMaxBytes), source(path);
  if (text.find(kAcceptanceVectorSchema) == std::string::npos) return std::nullopt;
  AcceptanceVector v = parse_acceptance_vector(text, source);
  if (v.tested.empty() || v.tested[0].empty() || v.tested[0][0] == 0) {
    throw_input("InvalidAcceptanceVector",
                "{}: tested[0][0]: expected 1 or more, as nothing follows from none, found 0",
                source);
  }
  return v;
}

OptionValue sweep_slice() {
  return {fmt::format("K/N with 1 <= K <= N <= {}", kMaxSlices),
          [](RunConfig& c, std::string_view text) {
            const std::size_t slash = std::min(text.find('/'), text.size());
            const auto k = parse_integer(text.substr(0, slash));
            const auto n = parse_integer(text.substr(std::min(text.size(), slash + 1)));
            if (!k || !n || *k < 1 || *n < *k || *n > kMaxSlices) return false;
            c.slice = {static_cast<int>(*k), static_cast<int>(*n)};
            return true;
          },
          [](const RunConfig& c) -> ParamValue {
            if (c.slice.count == 1) return std::monostate{};
            return fmt::format("{}/{}", c.slice.index, c.slice.count);
          }};
}

// The items of a comma list in which "\\," is a comma of a name.
std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 1 < text.size() && text[i + 1] == ',';
    if (text[i] == ',') {
      names.emplace_back();
    } else {
      names.back() += text[escaped ? ++i : i];
    }
  }
  return names;
}

OptionValue journal_files() {
  return {"a comma list of files, each once; a comma of a name is \\,",
          [](RunConfig& c, std::string_view text) {
            c.merge_files = split_names(text);
            std::vector<std::string> sorted = c.merge_files;
            std::ranges::sort(sorted);
            return !sorted.front().empty() && std::ranges::adjacent_find(sorted) == sorted.end();
          },
          [](const RunConfig& c) -> ParamValue {
            if (c.merge_files.empty()) return std::monostate{};
            return c.merge_files;
          }};
}

}  // namespace triforce
