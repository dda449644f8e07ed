// The order of floats as integers.
#pragma once
#include <bit>
#include <cstdint>

namespace triforce::cpu {

// Rises as `x` falls, so that sorting upwards is largest first. -0 equals +0. `x` is no NaN.
inline std::uint32_t falling_rank(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x + 0.0F);
  return (bits >> 31) != 0 ? bits : ~(bits | 0x80000000U);
}

}  // namespace triforce::cpu
