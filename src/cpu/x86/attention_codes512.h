// Groups of codes (attention_codes.h) against queries and probabilities in bf16.
#pragma once
#include "cpu/x86/dot512.h"
//
#include "cpu/attention_codes.h"

namespace triforce::cpu {
namespace {

// Codes of 4 bits as kOffset more than they are: with the right exponent a code is the end of a
// bf16 as it lies, and no table is read.
struct OffsetCodeFormat : DotCodeFormat<4> {
  static constexpr float kOffset = 136;
  TF_AVX512 __m512bh load(const std::uint32_t* p, int part) {
    using Halves = std::uint16_t __attribute__((vector_size(64)));
    constexpr int kMaskAndFlip = 0x6A;  // (a & b) ^ c
    const auto halves = reinterpret_cast<Halves>(_mm512_loadu_si512(p));
    const auto shifted = reinterpret_cast<__m512i>(halves >> (4 * part));
    return reinterpret_cast<__m512bh>(_mm512_ternarylogic_epi32(
        shifted, _mm512_set1_epi16(15), _mm512_set1_epi16(0x4308), kMaskAndFlip));
  }
};

// As FloatFold, less what the codes' offset adds. A zero becomes two bf16, whose sum it is: in f16
// it has fewer digits than both.
template <class C>
struct DotFold {
  static constexpr int kMaxRows = Avx512Vector::kMaxRows;

  TF_ISA_INLINE static void fold(const CodeTile& a, const std::uint16_t* x, std::int64_t stride,
                                 int count, std::uint16_t* scaled, std::int64_t scaled_stride,
                                 float* sums) {
    __m256 sum[kMaxRows];
    for (int r = 0; r < count; ++r) sum[r] = _mm256_setzero_ps();
    const __m256bh offset = round(_mm512_set1_ps(-C::kOffset));
    for (int i = 0; i < a.depths; i += kLanes) {
      const __m512 scale = Avx512Vector::load(a.scales + i), zero = Avx512Vector::load(a.zeros + i);
      const __m256bh high = round(zero);
      const __m256bh low = round(_mm512_sub_ps(zero, widen(reinterpret_cast<__m256i>(high))));
      for (int r = 0; r < count; ++r) {
        const __m256i from = load(x + r * stride + i);
        const __m256bh to = round(_mm512_mul_ps(widen(from), scale));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(scaled + r * scaled_stride + i),
                            reinterpret_cast<__m256i>(to));
        sum[r] = _mm256_dpbf16_ps(sum[r], reinterpret_cast<__m256bh>(from), high);
        sum[r] = _mm256_dpbf16_ps(sum[r], reinterpret_cast<__m256bh>(from), low);
        if constexpr (C::kOffset != 0) sum[r] = _mm256_dpbf16_ps(sum[r], to, offset);
      }
    }
    for (int r = 0; r < count; ++r) {
      sums[r] = Avx512Vector::sum_lanes(_mm512_zextps256_ps512(sum[r]));
    }
  }

 private:
  TF_AVX512 __m256i load(const std::uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  TF_AVX512 __m512 widen(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
  }
  TF_AVX512 __m256bh round(__m512 x) { return _mm512_cvtneps_pbh(x); }
};

template <class C>
using DotCodeAttention = CodeAttention<Avx512Vector, DotFormat, C, DotFold<C>>;

}  // namespace
}  // namespace triforce::cpu
