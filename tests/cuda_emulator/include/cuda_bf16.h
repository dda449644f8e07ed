// bf16 of the emulated CUDA: the type, its pair, conversions, arithmetic and comparisons.
#pragma once
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cuda_runtime.h"
#include "tf_half_bits.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};
struct alignas(2) __nv_bfloat16 {
  unsigned short __x;

  __nv_bfloat16() = default;
  constexpr __nv_bfloat16(__nv_bfloat16_raw raw) : __x(raw.x) {}
  __nv_bfloat16(float value) : __x(tf_emulator::detail::bfloat_of_float(value)) {}
  __nv_bfloat16(double value)
      : __x(tf_emulator::detail::bfloat_of_float(tf_emulator::detail::float_to_odd(value))) {}
  template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer>>>
  __nv_bfloat16(Integer value) : __nv_bfloat16(static_cast<double>(value)) {}
  operator float() const { return tf_emulator::detail::float_of_bfloat(__x); }
  operator __nv_bfloat16_raw() const { return {__x}; }
  __nv_bfloat16& operator=(float value) { return *this = __nv_bfloat16(value); }
  __nv_bfloat16& operator+=(const __nv_bfloat16& o) {
    return *this = __nv_bfloat16(float(*this) + float(o));
  }
  __nv_bfloat16& operator-=(const __nv_bfloat16& o) {
    return *this = __nv_bfloat16(float(*this) - float(o));
  }
  __nv_bfloat16& operator*=(const __nv_bfloat16& o) {
    return *this = __nv_bfloat16(float(*this) * float(o));
  }
  __nv_bfloat16& operator/=(const __nv_bfloat16& o) {
    return *this = __nv_bfloat16(float(*this) / float(o));
  }
};
using nv_bfloat16 = __nv_bfloat16;

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __nv_bfloat162(const __nv_bfloat16& a, const __nv_bfloat16& b) : x(a), y(b) {}
};
using nv_bfloat162 = __nv_bfloat162;

// Sums, products and quotients of two values are exact enough in f32 that rounding twice rounds
// once.
inline __nv_bfloat16 operator+(const __nv_bfloat16& a, const __nv_bfloat16& b) {
  return __nv_bfloat16(float(a) + float(b));
}
inline __nv_bfloat16 operator-(const __nv_bfloat16& a, const __nv_bfloat16& b) {
  return __nv_bfloat16(float(a) - float(b));
}
inline __nv_bfloat16 operator*(const __nv_bfloat16& a, const __nv_bfloat16& b) {
  return __nv_bfloat16(float(a) * float(b));
}
inline __nv_bfloat16 operator/(const __nv_bfloat16& a, const __nv_bfloat16& b) {
  return __nv_bfloat16(float(a) / float(b));
}
inline __nv_bfloat16 operator-(const __nv_bfloat16& a) {
  return __nv_bfloat16_raw{static_cast<unsigned short>(a.__x ^ 0x8000u)};
}
inline bool operator==(const __nv_bfloat16& a, const __nv_bfloat16& b) {
  return float(a) == float(b);
}
inline bool operator!=(const __nv_bfloat16& a, const __nv_bfloat16& b) {
  return float(a) != float(b);
}
inline bool operator<(const __nv_bfloat16& a, const __nv_bfloat16& b) {
  return float(a) < float(b);
}
inline bool operator>(const __nv_bfloat16& a, const __nv_bfloat16& b) {
  return float(a) > float(b);
}
inline bool operator<=(const __nv_bfloat16& a, const __nv_bfloat16& b) {
  return float(a) <= float(b);
}
inline bool operator>=(const __nv_bfloat16& a, const __nv_bfloat16& b) {
  return float(a) >= float(b);
}

inline __nv_bfloat16 __float2bfloat16(float a) { return __nv_bfloat16(a); }
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return __nv_bfloat16(a); }
inline __nv_bfloat16 __double2bfloat16(double a) { return __nv_bfloat16(a); }
inline float __bfloat162float(const __nv_bfloat16& a) { return float(a); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return __nv_bfloat16_raw{a}; }
inline unsigned short __bfloat16_as_ushort(const __nv_bfloat16& a) { return a.__x; }
inline __nv_bfloat162 __float2bfloat162_rn(float a) { return {__nv_bfloat16(a), __nv_bfloat16(a)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {__nv_bfloat16(a), __nv_bfloat16(b)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) {
  return {__nv_bfloat16(a.x), __nv_bfloat16(a.y)};
}
inline float2 __bfloat1622float2(const __nv_bfloat162& a) { return {float(a.x), float(a.y)}; }
inline float __low2float(const __nv_bfloat162& a) { return float(a.x); }
inline float __high2float(const __nv_bfloat162& a) { return float(a.y); }
inline __nv_bfloat16 __low2bfloat16(const __nv_bfloat162& a) { return a.x; }
inline __nv_bfloat16 __high2bfloat16(const __nv_bfloat162& a) { return a.y; }
inline __nv_bfloat162 __bfloat162bfloat162(const __nv_bfloat16& a) { return {a, a}; }
inline __nv_bfloat162 __halves2bfloat162(const __nv_bfloat16& a, const __nv_bfloat16& b) {
  return {a, b};
}
inline __nv_bfloat162 make_nv_bfloat162(const __nv_bfloat16& a, const __nv_bfloat16& b) {
  return {a, b};
}
inline __nv_bfloat16 __hadd(const __nv_bfloat16& a, const __nv_bfloat16& b) { return a + b; }
inline __nv_bfloat16 __hsub(const __nv_bfloat16& a, const __nv_bfloat16& b) { return a - b; }
inline __nv_bfloat16 __hmul(const __nv_bfloat16& a, const __nv_bfloat16& b) { return a * b; }
inline __nv_bfloat16 __hdiv(const __nv_bfloat16& a, const __nv_bfloat16& b) { return a / b; }
inline __nv_bfloat16 __hneg(const __nv_bfloat16& a) { return -a; }
inline __nv_bfloat16 __habs(const __nv_bfloat16& a) {
  return __nv_bfloat16_raw{static_cast<unsigned short>(a.__x & 0x7fffu)};
}
inline __nv_bfloat16 __hfma(const __nv_bfloat16& a, const __nv_bfloat16& b,
                            const __nv_bfloat16& c) {
  return __nv_bfloat16(tf_emulator::detail::fma_to_odd(float(a), float(b), float(c)));
}
inline bool __hisnan(const __nv_bfloat16& a) { return std::isnan(float(a)); }
inline __nv_bfloat162 __hadd2(const __nv_bfloat162& a, const __nv_bfloat162& b) {
  return {a.x + b.x, a.y + b.y};
}
inline __nv_bfloat162 __hsub2(const __nv_bfloat162& a, const __nv_bfloat162& b) {
  return {a.x - b.x, a.y - b.y};
}
inline __nv_bfloat162 __hmul2(const __nv_bfloat162& a, const __nv_bfloat162& b) {
  return {a.x * b.x, a.y * b.y};
}
inline __nv_bfloat162 __hfma2(const __nv_bfloat162& a, const __nv_bfloat162& b,
                              const __nv_bfloat162& c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
