// Several floats at a time in the compiler's vector types. One body serves every instruction level:
// TF_PER_LEVEL compiles it for each, and since no step fuses or reorders, all levels give the same
// bits. Everything is forced inline and passed by reference, so no vector crosses a call.
//
// Sums whose order matters have sixteen lanes at every level. All else may have kWidth lanes, those
// of a level's registers. What compares must: gcc compares wider vectors lane by lane.
#pragma once
#include <cstdint>
#include <cstring>

#include "cpu/workers.h"

#define TF_INLINE inline __attribute__((always_inline))

// Defines name(Isa) that returns body compiled for that level; body may name kWidth.
#ifdef __x86_64__
#define TF_PER_LEVEL(name, body, parameters, arguments)                                         \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))) void name##_avx512 parameters { \
    [[maybe_unused]] constexpr int kWidth = 16;                                                 \
    body arguments;                                                                             \
  }                                                                                             \
  __attribute__((target("avx2"))) void name##_avx2 parameters {                                 \
    [[maybe_unused]] constexpr int kWidth = 8;                                                  \
    body arguments;                                                                             \
  }                                                                                             \
  void name##_baseline parameters {                                                             \
    [[maybe_unused]] constexpr int kWidth = 4;                                                  \
    body arguments;                                                                             \
  }                                                                                             \
  auto name(Isa isa) {                                                                          \
    return isa >= Isa::kAvx512 ? name##_avx512                                                  \
           : isa == Isa::kAvx2 ? name##_avx2                                                    \
                               : name##_baseline;                                               \
  }
#else  // the compiler's baseline has all that there is
#define TF_PER_LEVEL(name, body, parameters, arguments) \
  void name##_baseline parameters {                     \
    [[maybe_unused]] constexpr int kWidth = 4;          \
    body arguments;                                     \
  }                                                     \
  auto name(Isa /*isa*/) { return name##_baseline; }
#endif

namespace triforce::cpu {

// kWidth lanes of 32 bits, half as many of them, and half as many of 64 bits.
template <int kWidth>
struct Lanes {
  using F32 __attribute__((vector_size(kWidth * 4))) = float;
  using I32 __attribute__((vector_size(kWidth * 4))) = std::int32_t;
  using Half __attribute__((vector_size(kWidth * 2))) = float;
  using HalfI32 __attribute__((vector_size(kWidth * 2))) = std::int32_t;
  using F64 __attribute__((vector_size(kWidth * 4))) = double;
  using I64 __attribute__((vector_size(kWidth * 4))) = std::int64_t;
};
using F32x16 = Lanes<16>::F32;
using I32x16 = Lanes<16>::I32;

template <class V>
TF_INLINE void load(const float* p, V& v) {
  std::memcpy(&v, p, sizeof(v));
}
template <class V>
TF_INLINE void store(float* p, const V& v) {
  std::memcpy(p, &v, sizeof(v));
}
// The first n values, fewer than v has; the others become `fill`.
template <class V>
TF_INLINE void load_tail(const float* p, std::int64_t n, float fill, V& v) {
  v = V{} + fill;
  std::memcpy(&v, p, static_cast<std::size_t>(n) * sizeof(float));
}
template <class V>
TF_INLINE void store_tail(float* p, std::int64_t n, const V& v) {
  std::memcpy(p, &v, static_cast<std::size_t>(n) * sizeof(float));
}

// x = e^x within 2 units in the last place; 0 below -87.33, e^88.37 above 88.37, NaN stays NaN.
// Reduction by ln 2 in two parts (the first has 10 bits: exact products), then Taylor to r^7 on
// |r| <= 0.347, where the remainder is below 6e-9.
template <int kWidth>
TF_INLINE void exponential(typename Lanes<kWidth>::F32& x) {
  using F32 = typename Lanes<kWidth>::F32;
  using I32 = typename Lanes<kWidth>::I32;
  constexpr float kLow = -87.33F, kHigh = 88.37F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const I32 normal = x < kLow ? I32{} : I32{} - 1;
  x = x < kLow ? F32{} + kLow : x;
  x = x > kHigh ? F32{} + kHigh : x;
  const F32 shifted = x * 1.44269504F + kRound;
  const F32 n = shifted - kRound;
  F32 r = x - n * 0.693359375F;
  r = r + n * 2.12194440e-4F;
  F32 p = r * (1.0F / 5040.0F) + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  I32 bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = ((bits - 0x4B400000) + 127) << 23;  // 2^n
  F32 scale;
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
