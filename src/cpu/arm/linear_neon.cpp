// Linear layers of 16 floats in four NEON registers.
#define TF_ISA
#include "cpu/arm/vector_neon.h"
//
#include "cpu/arm/kernels.h"
#include "cpu/linear_quantised_tile.h"
#include "cpu/linear_tile.h"

namespace triforce::cpu {
namespace {

void round_bf16(const float* x, std::int64_t n, float* out) {
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    vst1q_f32(out + i, vreinterpretq_f32_u32(NeonVector::rounded(vld1q_f32(x + i))));
  }
  if (i < n) scalar_kernels().round_bf16(x + i, n - i, out + i);
}

}  // namespace

const LinearKernels& neon_kernels() {
  static const LinearKernels kKernels = [] {
    LinearKernels k = scalar_kernels();
    set_float_tiles<NeonVector>(k);
    set_code_tiles<NeonVector>(k);
    k.round_bf16 = round_bf16;
    return k;
  }();
  return kKernels;
}

}  // namespace triforce::cpu
