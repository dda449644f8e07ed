// The row format of the levels with vdpbf16ps, for the kernels of attention_tile.h and
// linear_tile.h. Included after TF_ISA, by the sources of those levels only.
#pragma once
#include "cpu/x86/vector512.h"

namespace triforce::cpu {
namespace {

// bf16 in pairs, multiplied as bf16 and summed as f32.
struct DotFormat {
  using Element = std::uint16_t;
  using Query = std::uint16_t;
  static constexpr int kPair = 2;
  static constexpr int kLoaded = 1;
  TF_AVX512 __m512bh load(const std::uint16_t* p) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
  }
  TF_AVX512 __m512bh broadcast(const std::uint16_t* p) {
    std::int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }
  TF_AVX512 __m512 mad(__m512 acc, __m512bh x, __m512bh s) { return _mm512_dpbf16_ps(acc, x, s); }
  TF_AVX512 __m512 pack(__m512 p0, __m512 p1, std::uint16_t* out, __m512 l) {
    const __m512bh both = _mm512_cvtne2ps_pbh(p1, p0);
    _mm512_storeu_si512(out, reinterpret_cast<__m512i>(both));
    const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));
    return _mm512_dpbf16_ps(l, both, ones);
  }
};

}  // namespace
}  // namespace triforce::cpu
