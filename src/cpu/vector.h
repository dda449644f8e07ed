// Sixteen floats at a time in the compiler's vector types. One body serves every instruction level:
// TF_PER_LEVEL compiles it for each, and since no step fuses or reorders, all levels give the same
// bits. Everything is forced inline and passed by reference, so no vector crosses a call.
#pragma once
#include <cstdint>
#include <cstring>

#include "cpu/workers.h"

#define TF_INLINE inline __attribute__((always_inline))

// Defines name(Isa) that returns body compiled for that level.
#ifdef __x86_64__
#define TF_PER_LEVEL(name, body, parameters, arguments)                                         \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))) void name##_avx512 parameters { \
    body arguments;                                                                             \
  }                                                                                             \
  __attribute__((target("avx2"))) void name##_avx2 parameters { body arguments; }               \
  void name##_baseline parameters { body arguments; }                                           \
  auto name(Isa isa) {                                                                          \
    return isa >= Isa::kAvx512 ? name##_avx512                                                  \
           : isa == Isa::kAvx2 ? name##_avx2                                                    \
                               : name##_baseline;                                               \
  }
#else  // the compiler's baseline has all that there is
#define TF_PER_LEVEL(name, body, parameters, arguments) \
  void name##_baseline parameters { body arguments; }   \
  auto name(Isa /*isa*/) { return name##_baseline; }
#endif

namespace triforce::cpu {

using F32x16 = float __attribute__((vector_size(64)));
using I32x16 = std::int32_t __attribute__((vector_size(64)));
using F32x8 = float __attribute__((vector_size(32)));
using F64x8 = double __attribute__((vector_size(64)));

TF_INLINE void load16(const float* p, F32x16& v) { std::memcpy(&v, p, sizeof(v)); }
TF_INLINE void store16(float* p, const F32x16& v) { std::memcpy(p, &v, sizeof(v)); }

// The first n < 16 values; the others become `fill`.
TF_INLINE void load_tail(const float* p, std::int64_t n, float fill, F32x16& v) {
  v = F32x16{} + fill;
  std::memcpy(&v, p, static_cast<std::size_t>(n) * sizeof(float));
}
TF_INLINE void store_tail(float* p, std::int64_t n, const F32x16& v) {
  std::memcpy(p, &v, static_cast<std::size_t>(n) * sizeof(float));
}

// x = e^x within 2 units in the last place; 0 below -87.33, e^88.37 above 88.37, NaN stays NaN.
// Reduction by ln 2 in two parts (the first has 10 bits: exact products), then Taylor to r^7 on
// |r| <= 0.347, where the remainder is below 6e-9.
TF_INLINE void exp16(F32x16& x) {
  constexpr float kLow = -87.33F, kHigh = 88.37F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const I32x16 normal = x < kLow ? I32x16{} : I32x16{} - 1;
  x = x < kLow ? F32x16{} + kLow : x;
  x = x > kHigh ? F32x16{} + kHigh : x;
  const F32x16 shifted = x * 1.44269504F + kRound;
  const F32x16 n = shifted - kRound;
  F32x16 r = x - n * 0.693359375F;
  r = r + n * 2.12194440e-4F;
  F32x16 p = r * (1.0F / 5040.0F) + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  I32x16 bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = ((bits - 0x4B400000) + 127) << 23;  // 2^n
  F32x16 scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  p = p * scale;
  std::memcpy(&bits, &p, sizeof(bits));
  bits &= normal;
  std::memcpy(&x, &bits, sizeof(x));
}

// Sum of the lanes in rising order, in double.
TF_INLINE double sum_lanes(const F32x16& v) {
  double sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += static_cast<double>(v[i]);
  return sum;
}

}  // namespace triforce::cpu
