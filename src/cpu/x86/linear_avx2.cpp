// Linear layers of 16 floats in two AVX2 registers.
#define TF_ISA __attribute__((target("avx2,fma,f16c")))
#include "cpu/x86/vector_avx2.h"
//
#include "cpu/linear_quantised_tile.h"
#include "cpu/linear_tile.h"
#include "cpu/x86/kernels.h"

namespace triforce::cpu {
namespace {

TF_ISA void round_bf16(const float* x, std::int64_t n, float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i bits = Avx2Vector::rounded(_mm256_loadu_ps(x + i));
    _mm256_storeu_ps(out + i, _mm256_castsi256_ps(bits));
  }
  if (i < n) scalar_kernels().round_bf16(x + i, n - i, out + i);
}

}  // namespace

const LinearKernels& avx2_kernels() {
  static const LinearKernels kKernels = [] {
    LinearKernels k = scalar_kernels();
    set_float_tiles<Avx2Vector>(k);
    set_code_tiles<Avx2Vector>(k);
    k.round_bf16 = round_bf16;
    return k;
  }();
  return kKernels;
}

}  // namespace triforce::cpu
