// Linear layers in AVX-512, f32 arithmetic, and conversions.
#define TF_ISA __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")))
#include "cpu/vector512.h"
//
#include "cpu/linear_tile.h"

namespace triforce::cpu {
namespace {

TF_ISA inline __m512i rounded_bits(__m512 x) {
  const __m512i b = _mm512_castps_si512(x);
  const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(b, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(up, nan, b, _mm512_set1_epi32(0x400000));
}

TF_ISA inline __mmask16 lanes(std::int64_t left) {
  return left >= 16 ? static_cast<__mmask16>(0xffff)
                    : static_cast<__mmask16>((1U << static_cast<unsigned>(left)) - 1U);
}

TF_ISA void to_bf16(const float* x, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    const __m512i bits = _mm512_srli_epi32(rounded_bits(_mm512_maskz_loadu_ps(m, x + i)), 16);
    _mm256_mask_storeu_epi16(out + i, m, _mm512_cvtepi32_epi16(bits));
  }
}

TF_ISA void round_bf16(const float* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    const __m512i bits = _mm512_and_si512(rounded_bits(_mm512_maskz_loadu_ps(m, x + i)),
                                          _mm512_set1_epi32(static_cast<int>(0xffff0000U)));
    _mm512_mask_storeu_ps(out + i, m, _mm512_castsi512_ps(bits));
  }
}

TF_ISA void from_f16(const std::uint16_t* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    _mm512_mask_storeu_ps(out + i, m, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, x + i)));
  }
}

}  // namespace

const LinearKernels& avx512_kernels() {
  static const LinearKernels kKernels = [] {
    LinearKernels k;
    set_float_tiles<Avx512Vector>(k);
    k.to_bf16 = to_bf16;
    k.round_bf16 = round_bf16;
    k.from_f16 = from_f16;
    return k;
  }();
  return kKernels;
}

}  // namespace triforce::cpu
