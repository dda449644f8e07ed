// Attention kernels whose two products are vdpbf16ps.
#define TF_ISA __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c")))
#include "cpu/x86/attention_codes512.h"
//
#include "cpu/x86/kernels.h"

namespace triforce::cpu {
namespace {

// Rounds with the instruction for it instead of integer arithmetic; subnormals become 0.
struct RotatedFormat : PairFormat<Avx512Vector> {
  TF_AVX512 void store(std::uint16_t* p, const Two& x) {
    const auto apart = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x.odd, x.even));
    const __m512i order = _mm512_or_si512(_mm512_set1_epi32(0x100000), ramp());
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(order, apart));
  }

 private:
  // Lane i holds i in both halves; with 16 added to the upper one, word 2i is even i, 2i + 1 odd i.
  TF_AVX512 __m512i ramp() {
    const __m512i i = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_or_si512(i, _mm512_slli_epi32(i, 16));
  }
};

}  // namespace

const AttentionKernels& attention_kernels_avx512_bf16() {
  static const AttentionKernels kTable = [] {
    AttentionKernels t = attention_kernels_avx512(DType::kBF16);
    t.tiles = AttentionTile<Avx512Vector, DotFormat>::run;
    t.rotate = KeyKernels<Avx512Vector, RotatedFormat>::rotate;
    t.bf16_queries = true;
    t.int8_groups = DotCodeAttention<DotCodeFormat<8>>::run;
    t.int4_groups = DotCodeAttention<OffsetCodeFormat>::run;
    t.widen = nullptr;
    return t;
  }();
  return kTable;
}

}  // namespace triforce::cpu
