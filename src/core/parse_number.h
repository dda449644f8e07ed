// Numbers of untrusted text: all of it or nothing.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace triforce {

// nullopt: the text is anything else, out of range, or not finite. No sign '+', no space.
// Integers take the suffix k = 1024; byte counts k, M, G, T and KiB.. (powers of 1024), KB.. (of
// 1000).
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);
std::optional<std::int64_t> parse_bytes(std::string_view text);

// Splits at commas; empty parts are kept.
std::vector<std::string_view> split_list(std::string_view text);

}  // namespace triforce
