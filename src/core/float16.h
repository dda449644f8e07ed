// Scalar conversions of the 16-bit floating-point formats; vector code has its own.
#pragma once
#include <bit>
#include <cstdint>

namespace triforce {

inline float bf16_to_f32(std::uint16_t x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}

// Round to nearest even; NaN stays NaN (quiet).
inline std::uint16_t f32_to_bf16(float x) {
  const std::uint32_t b = std::bit_cast<std::uint32_t>(x);
  if ((b & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((b >> 16) | 0x40U);
  return static_cast<std::uint16_t>((b + 0x7fffU + ((b >> 16) & 1U)) >> 16);
}

inline float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000U) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1fU;
  const std::uint32_t mantissa = h & 0x3ffU;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

// Round to nearest even; overflow to infinity; NaN stays NaN (quiet).
inline std::uint16_t f32_to_f16(float x) {
  const std::uint32_t b = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (b >> 16) & 0x8000U;
  const std::uint32_t a = b & 0x7fffffffU;
  if (a > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U | ((a >> 13) & 0x1ffU));
  if (a >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (a < 0x38800000U) {  // below the smallest normal: round in units of 2^-24
    const float scaled = std::bit_cast<float>(a) * 0x1.0p24F;
    const auto whole = static_cast<std::uint32_t>(scaled);
    const float rest = scaled - static_cast<float>(whole);
    const bool up = rest > 0.5F || (rest == 0.5F && (whole & 1U) != 0);
    return static_cast<std::uint16_t>(sign | (whole + (up ? 1U : 0U)));
  }
  const std::uint32_t rounded = a + 0xfffU + ((a >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

}  // namespace triforce
