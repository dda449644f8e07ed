// 16 floats in two AVX2 registers, for the kernels of attention_tile.h and linear_tile.h. Included
// by the AVX2 sources only, after TF_ISA.
#pragma once
#include <immintrin.h>

#include "cpu/attention_exp2.h"
#include "cpu/workers.h"
#include "cpu/x86/attention_transpose.h"

#define TF_AVX2 TF_ISA static inline __attribute__((always_inline))

namespace triforce::cpu {
namespace {

struct Avx2Vector {
  struct Vec {
    __m256 a, b;  // lanes 0..7 and 8..15
  };
  static constexpr int kRegisters = 8;
  static constexpr int kMaxRows = 6, kMaxPairRows = 4;
  static constexpr int blocks(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

  TF_AVX2 Vec set1(float s) { return {_mm256_set1_ps(s), _mm256_set1_ps(s)}; }
  TF_AVX2 Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  TF_AVX2 __m128i load_half(const std::uint16_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  TF_AVX2 Vec load(const std::uint16_t* p) {
    return {_mm256_cvtph_ps(load_half(p)), _mm256_cvtph_ps(load_half(p + 8))};
  }
  TF_AVX2 void load_pairs(const std::uint16_t* p, Vec& even, Vec& odd) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + kLanes));
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
    even = {_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
    odd = {_mm256_castsi256_ps(_mm256_and_si256(a, high)),
           _mm256_castsi256_ps(_mm256_and_si256(b, high))};
  }
  template <int kBits>
  TF_AVX2 __m256 half_codes(const std::uint32_t* p, int place) {
    using Words = std::uint32_t __attribute__((vector_size(32)));
    using Integers = std::int32_t __attribute__((vector_size(32)));
    const auto words =
        reinterpret_cast<Words>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    const auto top = reinterpret_cast<Integers>(words << (32 - kBits - kBits * place));
    return _mm256_cvtepi32_ps(reinterpret_cast<__m256i>(top >> (32 - kBits)));
  }
  // Code `place` of each of 16 words (quantised_panel.h).
  template <int kBits>
  TF_AVX2 Vec codes(const std::uint32_t* p, int place) {
    return {half_codes<kBits>(p, place), half_codes<kBits>(p + 8, place)};
  }
  // Code `place` of 4 bits, times 16^place, which takes fewer instructions.
  TF_AVX2 __m256 half_placed_codes(const std::uint32_t* p, int place) {
    using Words = std::uint32_t __attribute__((vector_size(32)));
    const auto words =
        reinterpret_cast<Words>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    const Words above = (words ^ 0x88888888U) & (15U << (4 * place));  // by 8 for each
    return _mm256_cvtepi32_ps(reinterpret_cast<__m256i>(above - (8U << (4 * place))));
  }
  TF_AVX2 Vec placed_codes(const std::uint32_t* p, int place) {
    return {half_placed_codes(p, place), half_placed_codes(p + 8, place)};
  }
  TF_AVX2 void store(float* p, Vec x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
  }
  TF_AVX2 void store(std::uint16_t* p, Vec x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                     _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
  }
  // The nearest bf16, ties to even, in the upper half of each lane; NaN stays NaN.
  TF_AVX2 __m256i rounded(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_and_si256(_mm256_blendv_epi8(up, quiet, nan),
                            _mm256_set1_epi32(static_cast<int>(0xffff0000U)));
  }
  TF_AVX2 void store_pairs(std::uint16_t* p, Vec even, Vec odd) {
    const __m256i a = _mm256_or_si256(rounded(odd.a), _mm256_srli_epi32(rounded(even.a), 16));
    const __m256i b = _mm256_or_si256(rounded(odd.b), _mm256_srli_epi32(rounded(even.b), 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + kLanes), b);
  }
  TF_AVX2 Vec add(Vec x, Vec y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  TF_AVX2 Vec sub(Vec x, Vec y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  TF_AVX2 Vec mul(Vec x, Vec y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  TF_AVX2 Vec max(Vec x, Vec y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  TF_AVX2 Vec fma(Vec x, Vec y, Vec z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  TF_AVX2 __m256 exp2_half(__m256 x) {
    const __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 f = _mm256_sub_ps(x, n);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(kExp2C5), f, _mm256_set1_ps(kExp2C4));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExp2C3));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExp2C2));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExp2C1));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0F));
    // A NaN becomes exponent 2^31 here, whose low bits are 0: p stays NaN.
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
    return _mm256_and_ps(p, _mm256_cmp_ps(x, _mm256_set1_ps(kExp2Lowest), _CMP_NLT_UQ));
  }
  TF_AVX2 Vec exp2(Vec x) { return {exp2_half(x.a), exp2_half(x.b)}; }
  TF_AVX2 float max_lane(Vec x) {
    const __m256 m = _mm256_max_ps(x.a, x.b);
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
  }
  TF_AVX2 float sum_lanes(Vec x) {
    const __m256 m = _mm256_add_ps(x.a, x.b);
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
  }
  TF_AVX2 __m256 keep_half(__m256 x, int count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i kept = _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane);
    return _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), x, _mm256_castsi256_ps(kept));
  }
  // The first `count` lanes of x, -infinity in the others.
  TF_AVX2 Vec keep(Vec x, int count) { return {keep_half(x.a, count), keep_half(x.b, count - 8)}; }
  TF_AVX2 void sums_of_8(const Vec* x, float* out) {
    const __m256 s01 = _mm256_hadd_ps(x[0].a, x[0].b), s23 = _mm256_hadd_ps(x[1].a, x[1].b);
    const __m256 s45 = _mm256_hadd_ps(x[2].a, x[2].b), s67 = _mm256_hadd_ps(x[3].a, x[3].b);
    const __m256 low = _mm256_hadd_ps(s01, s23), high = _mm256_hadd_ps(s45, s67);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(low), _mm256_extractf128_ps(low, 1)));
    _mm_storeu_ps(out + 4,
                  _mm_add_ps(_mm256_castps256_ps128(high), _mm256_extractf128_ps(high, 1)));
  }
  TF_AVX2 void transpose(const float* base, const std::int32_t* rows, int stride, float* out) {
    transpose_8x16(base, rows, stride, out);
  }
};

}  // namespace
}  // namespace triforce::cpu
