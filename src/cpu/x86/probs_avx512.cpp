// Candidates of a row by AVX-512's compress instruction.
#define TF_ISA __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,popcnt")))
#include <immintrin.h>

#include "cpu/probs_kernels.h"
#include "cpu/x86/kernels.h"

namespace triforce::cpu {

TF_ISA void collect_avx512(const float* x, std::int64_t n, const float* block_max, float bound,
                           std::int32_t* ids, float* values, std::int64_t* count) {
  const __m512 limit = _mm512_set1_ps(bound);
  const __m512i step = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  std::int64_t found = 0;
  for (std::int64_t begin = 0; begin < n; begin += kProbsBlock) {
    if (block_max[begin / kProbsBlock] < bound) continue;
    for (std::int64_t i = begin; i < begin + kProbsBlock && i < n; i += kLanes) {
      const unsigned tail = n - i >= kLanes ? 0xffffU : (1U << static_cast<unsigned>(n - i)) - 1U;
      const __m512 v = _mm512_maskz_loadu_ps(static_cast<__mmask16>(tail), x + i);
      const __mmask16 in =
          _mm512_mask_cmp_ps_mask(static_cast<__mmask16>(tail), v, limit, _CMP_GE_OQ);
      const __m512i id = _mm512_add_epi32(step, _mm512_set1_epi32(static_cast<int>(i)));
      _mm512_storeu_si512(ids + found, _mm512_maskz_compress_epi32(in, id));
      _mm512_storeu_ps(values + found, _mm512_maskz_compress_ps(in, v));
      found += __builtin_popcount(in);
    }
  }
  *count = found;
}

}  // namespace triforce::cpu
