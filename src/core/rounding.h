// Division and rounding upwards, for sizes.
#pragma once
#include <cstdint>

namespace triforce {

// Both arguments are positive, or n is 0.
constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }
constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return ceil_div(n, to) * to; }

}  // namespace triforce
