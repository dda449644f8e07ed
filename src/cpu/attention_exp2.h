// 2^x for x <= 0, the same polynomial at every instruction level.
#pragma once
#include <bit>
#include <cstdint>

namespace triforce::cpu {

// 2^f on [-1/2, 1/2] as 1 + f (c1 + f (c2 + ...)): minimax of the relative error under the
// condition that 2^0 is exactly 1. Error 9.2e-8 before rounding, below 2.5e-7 after.
inline constexpr float kExp2C1 = 0x1.62e42ap-1F;
inline constexpr float kExp2C2 = 0x1.ebf9bcp-3F;
inline constexpr float kExp2C3 = 0x1.c6b752p-5F;
inline constexpr float kExp2C4 = 0x1.3cea88p-7F;
inline constexpr float kExp2C5 = 0x1.5bba14p-10F;
// Below this the result is exactly 0, as it is for a masked key (x = -infinity).
inline constexpr float kExp2Lowest = -126.0F;

// 0 <= result <= 1 for x <= 0; NaN for NaN.
inline float exp2_scalar(float x) {
  if (x < kExp2Lowest) return 0.0F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves an integer, to nearest even
  const float n = (x + kRound) - kRound;
  const float f = x - n;
  float p = kExp2C5;
  p = p * f + kExp2C4;
  p = p * f + kExp2C3;
  p = p * f + kExp2C2;
  p = p * f + kExp2C1;
  p = p * f + 1.0F;
  if (!(x <= 1.0F)) return p;  // NaN
  const auto exponent = static_cast<std::uint32_t>(static_cast<std::int32_t>(n)) << 23;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + exponent);
}

}  // namespace triforce::cpu
