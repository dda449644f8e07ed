// Attention kernels whose two products are vdpbf16ps.
#if defined(__x86_64__)
#define TF_ISA __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c")))
#include "cpu/attention_dot512.h"
//
#include "cpu/attention_tile.h"

namespace triforce::cpu {

const AttentionKernels& attention_kernels_avx512_bf16() {
  static const AttentionKernels kTable = [] {
    AttentionKernels t = attention_kernels_avx512(DType::kBF16);
    t.tiles = AttentionTile<Avx512Vector, DotFormat>::run;
    t.bf16_queries = true;
    return t;
  }();
  return kTable;
}

}  // namespace triforce::cpu
#endif
