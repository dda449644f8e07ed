// One option and its value as results echo it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace triforce {

// monostate: not set.
using ParamValue =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::string>>;
using Param = std::pair<std::string, ParamValue>;  // name in snake_case: "gen_len"

// "0.6", "true", "ar,triforce"; `none` for what is not set or not finite, `separator` in lists.
std::string to_text(const ParamValue& value, std::string_view none = "",
                    std::string_view separator = ",");

}  // namespace triforce
