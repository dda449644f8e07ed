// Linear layers of bf16 weights by vdpbf16ps.
#define TF_ISA __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c")))
#include "cpu/x86/dot512.h"
//
#include "cpu/linear_quantised_tile.h"
#include "cpu/linear_tile.h"
#include "cpu/x86/kernels.h"

namespace triforce::cpu {

const LinearKernels& avx512_bf16_kernels() {
  static const LinearKernels kKernels = [] {
    LinearKernels k = avx512_kernels();
    k.bf16 = LinearTile<Avx512Vector, DotFormat>::set(XFormat::kBf16);
    k.codes_bf16 = {.int8 = QuantisedTile<Avx512Vector, DotCodeFormat<8>, 8>::set(XFormat::kBf16),
                    .int4 = QuantisedTile<Avx512Vector, DotCodeFormat<4>, 4>::set(XFormat::kBf16)};
    return k;
  }();
  return kKernels;
}

}  // namespace triforce::cpu
