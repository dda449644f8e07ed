// Readers of option values and the builders the option table is written with.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/options.h"

namespace triforce {

// Whole-string conversions; nullopt if the text is anything else. Integers take the suffix k =
// 1024; byte counts k, M, G, T and KiB.. (powers of 1024), KB.. (powers of 1000).
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);
std::optional<std::int64_t> parse_bytes(std::string_view text);
// Splits at commas; empty parts are kept.
std::vector<std::string_view> split_list(std::string_view text);

// Throws Error(kUsage): "--name: expected ..., found '...'".
[[noreturn]] void fail_value(const OptionInfo& option, std::string_view found);

// What is common to all kinds of options: everything but the value's type.
struct OptionText {
  std::string name;
  std::vector<std::string> aliases;
  std::string value, unit, fallback, help;
  unsigned commands = 0;
};
OptionInfo make_option(OptionText text, std::string expected);

// `ref` is a generic lambda from RunConfig& (const or not) to the member the option sets.
template <class Ref>
OptionInfo integer_option(OptionText text, std::int64_t low, std::int64_t high, Ref ref) {
  const bool open = high >= (std::int64_t{1} << 40);
  OptionInfo o =
      make_option(std::move(text), open ? fmt::format("an integer of at least {}", low)
                                        : fmt::format("an integer in {}..{}", low, high));
  o.set = [=](const OptionInfo& self, RunConfig& c, std::string_view v) {
    const std::optional<std::int64_t> n = parse_integer(v);
    if (!n || *n < low || *n > high) fail_value(self, v);
    ref(c) = static_cast<std::decay_t<decltype(ref(c))>>(*n);
  };
  o.get = [=](const RunConfig& c) -> ParamValue { return static_cast<std::int64_t>(ref(c)); };
  return o;
}

// An integer or the word "auto", which sets the flag `is_auto(c)` and the value `most`.
template <class Ref, class Auto>
OptionInfo auto_integer_option(OptionText text, int low, int most, Ref ref, Auto is_auto) {
  OptionInfo o =
      make_option(std::move(text), fmt::format("an integer in {}..{} or auto", low, most));
  o.set = [=](const OptionInfo& self, RunConfig& c, std::string_view v) {
    const std::optional<std::int64_t> n = v == "auto" ? most : parse_integer(v);
    if (!n || *n < low || *n > most) fail_value(self, v);
    is_auto(c) = v == "auto";
    ref(c) = static_cast<int>(*n);
  };
  o.get = [=](const RunConfig& c) -> ParamValue {
    if (is_auto(c)) return std::string("auto");
    return std::int64_t{ref(c)};
  };
  return o;
}

template <class Ref>
OptionInfo text_option(OptionText text, std::string expected, Ref ref) {
  OptionInfo o = make_option(std::move(text), std::move(expected));
  o.set = [=](const OptionInfo& self, RunConfig& c, std::string_view v) {
    if (v.empty()) fail_value(self, v);
    ref(c) = std::string(v);
  };
  o.get = [=](const RunConfig& c) -> ParamValue {
    if (ref(c).empty()) return std::monostate{};
    return ref(c);
  };
  return o;
}

// One of a few words, each standing for a value.
template <class T, class Ref>
OptionInfo choice_option(OptionText text, std::vector<std::pair<std::string, T>> choices, Ref ref) {
  std::string expected = "one of ";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    expected += (i == 0 ? "" : ", ") + choices[i].first;
  }
  OptionInfo o = make_option(std::move(text), std::move(expected));
  o.set = [=](const OptionInfo& self, RunConfig& c, std::string_view v) {
    for (const auto& [word, value] : choices) {
      if (word == v) {
        ref(c) = value;
        return;
      }
    }
    fail_value(self, v);
  };
  o.get = [=](const RunConfig& c) -> ParamValue {
    for (const auto& [word, value] : choices) {
      if (ref(c) == value) return word;
    }
    return std::monostate{};
  };
  return o;
}

template <class Ref>
OptionInfo flag_option(OptionText text, Ref ref) {
  OptionInfo o = make_option(std::move(text), "true or false");
  o.set = [=](const OptionInfo& self, RunConfig& c, std::string_view v) {
    if (v != "true" && v != "false") fail_value(self, v);
    ref(c) = v == "true";
  };
  o.get = [=](const RunConfig& c) -> ParamValue { return ref(c); };
  return o;
}

// The rows of the table, by heading.
void add_model_options(std::vector<OptionInfo>& table);
void add_method_options(std::vector<OptionInfo>& table);
void add_sampling_options(std::vector<OptionInfo>& table);
void add_measuring_options(std::vector<OptionInfo>& table);
void add_output_options(std::vector<OptionInfo>& table);

}  // namespace triforce
