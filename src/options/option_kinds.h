// The kinds of option values: each returns how a member of RunConfig is read and shown. `ref` is a
// generic lambda from the configuration to the member; at() makes one.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/parse_number.h"
#include "options/options.h"

namespace triforce {

// at(&RunConfig::speculation, &SpeculationOptions::gamma): from all options to this one.
constexpr auto at(auto... path) {
  return [=](auto& config) -> auto& { return (config.*....*path); };
}

// An integer in low..high, or the word (empty: none). Anything else that the member holds (0, an
// empty optional) stands for the word, or for "not set".
template <class Ref>
OptionValue integer(std::int64_t low, std::int64_t high, Ref ref, std::string_view word = {}) {
  return {fmt::format("an integer in {}..{}{}{}", low, high, word.empty() ? "" : " or ", word),
          [=](RunConfig& c, std::string_view text) {
            using T = std::decay_t<decltype(ref(c))>;
            ref(c) = T{};
            if (!word.empty() && text == word) return true;
            const std::optional<std::int64_t> n = parse_integer(text);
            if (!n || *n < low || *n > high) return false;
            if constexpr (std::is_integral_v<T>) {
              ref(c) = static_cast<T>(*n);
            } else {
              ref(c) = static_cast<typename T::value_type>(*n);
            }
            return true;
          },
          [=](const RunConfig& c) -> ParamValue {
            std::optional<std::int64_t> n = ref(c);
            if (n && *n >= low && *n <= high) return *n;
            if (word.empty()) return std::monostate{};
            return std::string(word);
          },
          true};
}

// An integer in low..high or auto, which sets the flag `is_auto` and leaves the member as it is.
template <class Ref, class Auto>
OptionValue integer_or_auto(std::int64_t low, std::int64_t high, Ref ref, Auto is_auto) {
  OptionValue value = integer(low, high, ref, "auto");
  value.set = [set = value.set, is_auto](RunConfig& c, std::string_view text) {
    is_auto(c) = text == "auto";
    return is_auto(c) || set(c, text);
  };
  value.get = [get = value.get, is_auto](const RunConfig& c) -> ParamValue {
    if (is_auto(c)) return std::string("auto");
    return get(c);
  };
  return value;
}

// A number in an interval, beside which 0 may be allowed. A float member takes kMinPositive as its
// bound above 0: that and its inverse are floats, neither 0 nor infinite.
inline constexpr double kMinPositive = 1e-30;
struct Bounds {
  double low = 0, high = 0;
  bool open = false;  // low itself is not in it
  bool or_zero = false;
  bool contains(double x) const {
    return (x > low && x <= high) || (x == low && !open) || (x == 0 && or_zero);
  }
};
template <class Ref>
OptionValue real(Bounds in, Ref ref) {
  return {fmt::format("{}a number in {}{}, {}]", in.or_zero ? "0 or " : "", in.open ? '(' : '[',
                      in.low, in.high),
          [=](RunConfig& c, std::string_view text) {
            const std::optional<double> x = parse_real(text);
            if (!x || !in.contains(*x)) return false;
            using T = std::decay_t<decltype(ref(c))>;
            ref(c) = static_cast<T>(*x);
            return true;
          },
          [=](const RunConfig& c) -> ParamValue {
            using T = std::decay_t<decltype(ref(c))>;
            double x = 0;
            if constexpr (std::is_same_v<T, float>) {
              x = parse_real(fmt::format("{}", ref(c))).value_or(0);  // 0.6 as it was written
            } else {
              x = std::optional<double>(ref(c)).value_or(0);
            }
            if (!in.contains(x)) return std::monostate{};
            return x;
          },
          true};
}

// Any text but none.
template <class Ref>
OptionValue text(std::string expected, Ref ref) {
  return {std::move(expected),
          [=](RunConfig& c, std::string_view given) {
            ref(c) = std::string(given);
            return !given.empty();
          },
          [=](const RunConfig& c) -> ParamValue {
            if (ref(c).empty()) return std::monostate{};
            return ref(c);
          }};
}

// The value is one of a few words, each of which stands for a value. If two words stand for one
// value, the first is shown.
template <class T, class Ref>
OptionValue choice(std::vector<std::pair<std::string_view, T>> words, Ref ref) {
  std::string expected;
  std::vector<std::string> names;
  for (const auto& [word, value] : words) {
    expected += (expected.empty() ? "one of " : ", ") + std::string(word);
    names.emplace_back(word);
  }
  return {std::move(expected),
          [=](RunConfig& c, std::string_view given) {
            for (const auto& [word, value] : words) {
              if (word != given) continue;
              ref(c) = value;
              return true;
            }
            return false;
          },
          [=](const RunConfig& c) -> ParamValue {
            for (const auto& [word, value] : words) {
              if (ref(c) == value) return std::string(word);
            }
            return std::monostate{};
          },
          true, std::move(names)};
}

// The value is one of the names of an enumeration, or of these other names of its values.
template <class Ref, class E = std::decay_t<std::invoke_result_t<Ref, RunConfig&>>>
OptionValue choice(Ref ref, const std::vector<std::pair<std::string_view, E>>& others = {}) {
  std::vector<std::pair<std::string_view, E>> words;
  for (const char* name : names_of(E{})) words.emplace_back(name, static_cast<E>(words.size()));
  words.insert(words.end(), others.begin(), others.end());
  return choice(std::move(words), ref);
}

template <class Ref>
OptionValue flag(Ref ref) {
  return {"true or false",
          [=](RunConfig& c, std::string_view given) {
            ref(c) = given == "true";
            return given == "true" || given == "false";
          },
          [=](const RunConfig& c) -> ParamValue { return ref(c); }};
}

// Parents of a draft tree as --tree takes them: [-1, -1, 0].
std::string parents_text(std::span<const std::int16_t> parents);
// nullopt: the file is none of an acceptance vector, or there is no such file. Throws as
// parse_acceptance_vector(), and where nothing was counted.
std::optional<AcceptanceVector> vector_of_file(std::string_view path);

// The shape of what a level proposes: a file of it, its list of parents, or chain.
template <class Ref>
OptionValue draft_tree(Ref ref) {
  return {"a file of a draft tree, its list of parents as [-1, -1, 0], or chain",
          [=](RunConfig& c, std::string_view given) {
            ref(c).reset();
            if (given.empty() || given == "chain") return !given.empty();
            if (given.front() == '[') {
              ref(c) = parse_draft_tree(fmt::format(R"({{"parents": {}}})", given),
                                        "the list of parents");
            } else {
              ref(c) = read_draft_tree(given);
              c.value_files.emplace_back(given);
            }
            return true;
          },
          [=](const RunConfig& c) -> ParamValue {
            if (!ref(c)) return std::monostate{};
            return parents_text(ref(c)->parents());
          }};
}
// Or auto, which sets the flag `is_auto` and no shape, and with a file of an acceptance vector
// `vector`, too.
template <class Ref, class Auto, class Vector>
OptionValue draft_tree_or_auto(Ref ref, Auto is_auto, Vector vector) {
  OptionValue value = draft_tree(ref);
  value.expected =
      "a file of a draft tree or an acceptance vector, a list of parents as [-1, -1, 0], chain or "
      "auto";
  value.set = [set = value.set, ref, is_auto, vector](RunConfig& c, std::string_view text) {
    ref(c).reset();
    vector(c) = vector_of_file(text);
    if (vector(c)) c.value_files.emplace_back(text);
    is_auto(c) = text == "auto" || vector(c);
    return is_auto(c) || set(c, text);
  };
  value.get = [get = value.get, is_auto](const RunConfig& c) -> ParamValue {
    if (is_auto(c)) return std::string("auto");
    return get(c);
  };
  return value;
}

// Kinds that one option has.
OptionValue methods();
OptionValue rebuild_policy();
OptionValue lookup();
OptionValue device_name();
OptionValue byte_count();
OptionValue acceptance_rates();
OptionValue records();
// YaRN as --rope-scaling has it.
std::string yarn_text(const RopeScaling& scaling);
OptionValue rope_scaling();
OptionValue sweep_slice();
OptionValue journal_files();

}  // namespace triforce
