// f16 of the emulated CUDA: the type, its pair, conversions, arithmetic and comparisons.
#pragma once
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cuda_runtime.h"
#include "tf_half_bits.h"

struct __half_raw {
  unsigned short x;
};
struct alignas(2) __half {
  unsigned short __x;

  __half() = default;
  constexpr __half(__half_raw raw) : __x(raw.x) {}
  __half(float value) : __x(tf_emulator::detail::half_of_float(value)) {}
  __half(double value)
      : __x(tf_emulator::detail::half_of_float(tf_emulator::detail::float_to_odd(value))) {}
  template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer>>>
  __half(Integer value) : __half(static_cast<double>(value)) {}
  operator float() const { return tf_emulator::detail::float_of_half(__x); }
  operator __half_raw() const { return {__x}; }
  __half& operator=(float value) { return *this = __half(value); }
  __half& operator+=(const __half& o) { return *this = __half(float(*this) + float(o)); }
  __half& operator-=(const __half& o) { return *this = __half(float(*this) - float(o)); }
  __half& operator*=(const __half& o) { return *this = __half(float(*this) * float(o)); }
  __half& operator/=(const __half& o) { return *this = __half(float(*this) / float(o)); }
};
using half = __half;

struct alignas(4) __half2 {
  __half x, y;
  __half2() = default;
  __half2(const __half& a, const __half& b) : x(a), y(b) {}
};
using half2 = __half2;

// Sums, products and quotients of two values are exact enough in f32 that rounding twice rounds
// once.
inline __half operator+(const __half& a, const __half& b) { return __half(float(a) + float(b)); }
inline __half operator-(const __half& a, const __half& b) { return __half(float(a) - float(b)); }
inline __half operator*(const __half& a, const __half& b) { return __half(float(a) * float(b)); }
inline __half operator/(const __half& a, const __half& b) { return __half(float(a) / float(b)); }
inline __half operator-(const __half& a) {
  return __half_raw{static_cast<unsigned short>(a.__x ^ 0x8000u)};
}
inline bool operator==(const __half& a, const __half& b) { return float(a) == float(b); }
inline bool operator!=(const __half& a, const __half& b) { return float(a) != float(b); }
inline bool operator<(const __half& a, const __half& b) { return float(a) < float(b); }
inline bool operator>(const __half& a, const __half& b) { return float(a) > float(b); }
inline bool operator<=(const __half& a, const __half& b) { return float(a) <= float(b); }
inline bool operator>=(const __half& a, const __half& b) { return float(a) >= float(b); }

inline __half __float2half(float a) { return __half(a); }
inline __half __float2half_rn(float a) { return __half(a); }
inline __half __double2half(double a) { return __half(a); }
inline float __half2float(const __half& a) { return float(a); }
inline __half __ushort_as_half(unsigned short a) { return __half_raw{a}; }
inline unsigned short __half_as_ushort(const __half& a) { return a.__x; }
inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __float22half2_rn(float2 a) { return {__half(a.x), __half(a.y)}; }
inline float2 __half22float2(const __half2& a) { return {float(a.x), float(a.y)}; }
inline float __low2float(const __half2& a) { return float(a.x); }
inline float __high2float(const __half2& a) { return float(a.y); }
inline __half __low2half(const __half2& a) { return a.x; }
inline __half __high2half(const __half2& a) { return a.y; }
inline __half2 __half2half2(const __half& a) { return {a, a}; }
inline __half2 __halves2half2(const __half& a, const __half& b) { return {a, b}; }
inline __half2 make_half2(const __half& a, const __half& b) { return {a, b}; }
inline __half __hadd(const __half& a, const __half& b) { return a + b; }
inline __half __hsub(const __half& a, const __half& b) { return a - b; }
inline __half __hmul(const __half& a, const __half& b) { return a * b; }
inline __half __hdiv(const __half& a, const __half& b) { return a / b; }
inline __half __hneg(const __half& a) { return -a; }
inline __half __habs(const __half& a) {
  return __half_raw{static_cast<unsigned short>(a.__x & 0x7fffu)};
}
inline __half __hfma(const __half& a, const __half& b, const __half& c) {
  return __half(tf_emulator::detail::fma_to_odd(float(a), float(b), float(c)));
}
inline bool __hisnan(const __half& a) { return std::isnan(float(a)); }
inline __half2 __hadd2(const __half2& a, const __half2& b) { return {a.x + b.x, a.y + b.y}; }
inline __half2 __hsub2(const __half2& a, const __half2& b) { return {a.x - b.x, a.y - b.y}; }
inline __half2 __hmul2(const __half2& a, const __half2& b) { return {a.x * b.x, a.y * b.y}; }
inline __half2 __hfma2(const __half2& a, const __half2& b, const __half2& c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
