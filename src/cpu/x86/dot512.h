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

// Codes of kBits as bf16, which holds each of them, in pairs of even and odd depth. A part is one
// pair of a word (quantised_panel.h).
template <int kBits>
struct DotCodeFormat {
  using Query = std::uint16_t;
  static constexpr int kParts = 16 / kBits, kDepth = 32 / kBits;
  static constexpr float kOffset = 0;
  TF_AVX512 __m512bh load(const std::uint32_t* p, int part) {
    if constexpr (kBits == 4) {  // of an index the instruction reads the lowest five bits
      using Halves = std::uint16_t __attribute__((vector_size(64)));
      static constexpr std::uint16_t kValues[32] = {
          0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0xc100, 0xc0e0, 0xc0c0,
          0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0,
          0x40c0, 0x40e0, 0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80};
      const auto halves = reinterpret_cast<Halves>(_mm512_loadu_si512(p));
      return reinterpret_cast<__m512bh>(_mm512_permutexvar_epi16(
          reinterpret_cast<__m512i>(halves >> (4 * part)), _mm512_loadu_si512(kValues)));
    } else {
      const __m512 even = Avx512Vector::codes<kBits>(p, part);
      const __m512 odd = Avx512Vector::codes<kBits>(p, part + kParts);
      const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even), 16);
      return reinterpret_cast<__m512bh>(_mm512_or_si512(low, _mm512_castps_si512(odd)));
    }
  }
  TF_AVX512 __m512bh broadcast(const std::uint16_t* x, int part) {
    return DotFormat::broadcast(x + 2 * part);
  }
  TF_AVX512 __m512 mad(__m512 acc, __m512bh w, __m512bh x) { return _mm512_dpbf16_ps(acc, w, x); }
};

}  // namespace
}  // namespace triforce::cpu
