// 16 floats in one AVX-512 register, for the kernels of attention_tile.h and linear_tile.h.
// Included by the AVX-512 sources only, after TF_ISA.
#pragma once
#include <immintrin.h>

#include "cpu/attention_exp2.h"
#include "cpu/workers.h"
#include "cpu/x86/attention_transpose.h"

#define TF_AVX512 TF_ISA static inline __attribute__((always_inline))

namespace triforce::cpu {
namespace {

struct Avx512Vector {
  using Vec = __m512;
  static constexpr int kRegisters = 32;
  static constexpr int kMaxRows = 12, kMaxPairRows = 12;
  static constexpr int blocks(int rows) { return rows <= 4 ? 4 : 2; }

  TF_AVX512 Vec set1(float s) { return _mm512_set1_ps(s); }
  TF_AVX512 Vec load(const float* p) { return _mm512_loadu_ps(p); }
  TF_AVX512 Vec load(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  TF_AVX512 void load_pairs(const std::uint16_t* p, Vec& even, Vec& odd) {
    const __m512i x = _mm512_loadu_si512(p);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    odd =
        _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
  }
  // Code `place` of each of 16 words (quantised_panel.h).
  template <int kBits>
  TF_AVX512 Vec codes(const std::uint32_t* p, int place) {
    using Words = std::uint32_t __attribute__((vector_size(64)));
    using Integers = std::int32_t __attribute__((vector_size(64)));
    const auto words = reinterpret_cast<Words>(_mm512_loadu_si512(p));
    if constexpr (kBits == 4) {  // of an index the instruction reads the lowest four bits
      const Vec values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
      return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(words >> (4 * place)), values);
    } else {
      const auto top = reinterpret_cast<Integers>(words << (32 - kBits - kBits * place));
      return _mm512_cvtepi32_ps(reinterpret_cast<__m512i>(top >> (32 - kBits)));
    }
  }
  TF_AVX512 void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
  TF_AVX512 void store(std::uint16_t* p, Vec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  // The nearest bf16, ties to even, in the upper half of each lane; NaN stays NaN.
  TF_AVX512 __m512i rounded(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i r = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_and_si512(r, _mm512_set1_epi32(static_cast<int>(0xffff0000U)));
  }
  TF_AVX512 void store_pairs(std::uint16_t* p, Vec even, Vec odd) {
    _mm512_storeu_si512(p, _mm512_or_si512(rounded(odd), _mm512_srli_epi32(rounded(even), 16)));
  }
  TF_AVX512 Vec add(Vec x, Vec y) { return _mm512_add_ps(x, y); }
  TF_AVX512 Vec sub(Vec x, Vec y) { return _mm512_sub_ps(x, y); }
  TF_AVX512 Vec mul(Vec x, Vec y) { return _mm512_mul_ps(x, y); }
  TF_AVX512 Vec max(Vec x, Vec y) { return _mm512_max_ps(x, y); }
  TF_AVX512 Vec fma(Vec x, Vec y, Vec z) { return _mm512_fmadd_ps(x, y, z); }
  TF_AVX512 Vec exp2(Vec x) {
    const Vec n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT);
    const Vec f = _mm512_sub_ps(x, n);
    Vec p = _mm512_fmadd_ps(_mm512_set1_ps(kExp2C5), f, _mm512_set1_ps(kExp2C4));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2C3));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2C2));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2C1));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0F));
    const __mmask16 kept = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExp2Lowest), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(kept, p, n);
  }
  TF_AVX512 float max_lane(Vec x) {
    const __m256 m = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
  }
  TF_AVX512 float sum_lanes(Vec x) {
    const __m256 m = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
  }
  // The first `count` lanes of x, -infinity in the others.
  TF_AVX512 Vec keep(Vec x, int count) {
    const int lanes = count < 0 ? 0 : count > kLanes ? kLanes : count;
    const auto kept = static_cast<__mmask16>((1U << lanes) - 1U);
    return _mm512_mask_mov_ps(_mm512_set1_ps(-__builtin_inff()), kept, x);
  }
  // Sum j of 4 vectors is that of lanes 8 (j % 2) ... of vector j / 2.
  TF_AVX512 void sums_of_8(const Vec* x, float* out) {
    const Vec a = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
    const Vec b = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
    const Vec c = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
    const Vec sum = _mm512_add_ps(c, _mm512_shuffle_f32x4(c, c, 0xB1));
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm256_storeu_ps(out, _mm512_castps512_ps256(_mm512_permutexvar_ps(order, sum)));
  }
  TF_AVX512 void transpose(const float* base, const std::int32_t* rows, int stride, float* out) {
    transpose_8x16(base, rows, stride, out);
  }
};

}  // namespace
}  // namespace triforce::cpu
