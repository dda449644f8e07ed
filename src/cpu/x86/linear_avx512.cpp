// Linear layers in AVX-512, f32 arithmetic, and conversions.
#define TF_ISA __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")))
#include "cpu/x86/vector512.h"
//
#include "cpu/linear_quantised_tile.h"
#include "cpu/linear_tile.h"
#include "cpu/x86/kernels.h"

namespace triforce::cpu {
namespace {

TF_ISA inline __mmask16 lanes(std::int64_t left) {
  return left >= 16 ? static_cast<__mmask16>(0xffff)
                    : static_cast<__mmask16>((1U << static_cast<unsigned>(left)) - 1U);
}

TF_ISA void to_bf16(const float* x, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    const __m512i bits =
        _mm512_srli_epi32(Avx512Vector::rounded(_mm512_maskz_loadu_ps(m, x + i)), 16);
    _mm256_mask_storeu_epi16(out + i, m, _mm512_cvtepi32_epi16(bits));
  }
}

TF_ISA void round_bf16(const float* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    const __m512i bits = Avx512Vector::rounded(_mm512_maskz_loadu_ps(m, x + i));
    _mm512_mask_storeu_ps(out + i, m, _mm512_castsi512_ps(bits));
  }
}

}  // namespace

const LinearKernels& avx512_kernels() {
  static const LinearKernels kKernels = [] {
    LinearKernels k;
    set_float_tiles<Avx512Vector>(k);
    set_code_tiles<Avx512Vector>(k);
    k.to_bf16 = to_bf16;
    k.round_bf16 = round_bf16;
    return k;
  }();
  return kKernels;
}

}  // namespace triforce::cpu
