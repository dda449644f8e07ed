// One option and its value as results echo it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace triforce {

// A type of its own, because libstdc++ 12 takes a variant of nothing but plain values, strings and
// vectors for one that is never without a value: a copy of it that runs out of memory destroys what
// was not made yet.
struct ParamList {
  std::vector<std::string> words;
  // NOLINTNEXTLINE(google-explicit-constructor): a value like the other alternatives
  ParamList(std::vector<std::string> list) : words(std::move(list)) {}
  bool operator==(const ParamList&) const = default;
};

// monostate: not set.
using ParamValue = std::variant<std::monostate, bool, std::int64_t, double, std::string, ParamList>;
using Param = std::pair<std::string, ParamValue>;  // name in snake_case: "gen_len"

// The value of that name; nullptr: there is none.
const ParamValue* find_param(const std::vector<Param>& params, std::string_view name);
// Whether it is there and set.
bool is_given(const std::vector<Param>& params, std::string_view name);

// "0.6", "true", "ar,triforce"; `none` for what is not set or not finite, `separator` in lists.
std::string to_text(const ParamValue& value, std::string_view none = "",
                    std::string_view separator = ",");

// Parameters as a JSON object, for core/fields.h.
class JsonView;
class JsonWriter;
void json_write(JsonWriter& out, const std::vector<Param>& params);
void json_read(const JsonView& at, std::vector<Param>& params);
void json_schema(JsonWriter& out, std::string_view description, const std::vector<Param>& any);

}  // namespace triforce
