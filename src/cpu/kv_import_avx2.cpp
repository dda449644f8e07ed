// Imports in AVX2. Offsets inside a line are constants of the unrolled loops.
#include <immintrin.h>

#define TF_ISA __attribute__((target("avx2")))
#include "cpu/kv_import_tile.h"

namespace triforce::cpu {
namespace {

constexpr int kHalfBlock = kKeyBlock / 2;
constexpr int kBlockPairBytes = 64;  // a pair of dimensions of a key block

TF_ISA_INLINE __m128i load_part(const std::byte* line, std::int64_t row_bytes, int row, int part) {
  return _mm_loadu_si128(
      reinterpret_cast<const __m128i*>(line + part_offset(row_bytes, row, part)));
}

// One part of rows i and i + 4 of half a key block.
TF_ISA_INLINE __m256i load_two(const std::byte* line, std::int64_t row_bytes, int i, int part) {
  return _mm256_set_m128i(load_part(line, row_bytes, i + 4, part),
                          load_part(line, row_bytes, i, part));
}

// A pair of dimensions of half a key block; `to` is its place in that block.
template <int kPair>
TF_ISA_INLINE void store_pair(std::byte* to, __m256i pair) {
  if constexpr (kPair == 2) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), pair);
  } else {
    const __m256i even_then_odd =
        _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,  //
                         0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i apart = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(pair, even_then_odd), 0xd8);
    _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(apart));
    _mm_store_si128(reinterpret_cast<__m128i*>(to + kBlockPairBytes / 2),
                    _mm256_extracti128_si256(apart, 1));
  }
}

// A part of half a key block is a table of 8 rows by 4 pairs of dimensions, turned into 4 by 8.
template <int kPair>
TF_ISA_INLINE void import_part(const std::byte* line, std::int64_t row_bytes, int part,
                               std::byte* out) {
  const __m256i a = load_two(line, row_bytes, 0, part), b = load_two(line, row_bytes, 1, part);
  const __m256i c = load_two(line, row_bytes, 2, part), e = load_two(line, row_bytes, 3, part);
  const __m256i ab_low = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
  const __m256i ce_low = _mm256_unpacklo_epi32(c, e), ce_high = _mm256_unpackhi_epi32(c, e);
  store_pair<kPair>(out, _mm256_unpacklo_epi64(ab_low, ce_low));
  store_pair<kPair>(out + kBlockPairBytes, _mm256_unpackhi_epi64(ab_low, ce_low));
  store_pair<kPair>(out + 2 * kBlockPairBytes, _mm256_unpacklo_epi64(ab_high, ce_high));
  store_pair<kPair>(out + 3 * kBlockPairBytes, _mm256_unpackhi_epi64(ab_high, ce_high));
}

// The line of rows row to row + kPair - 1 of 8.
template <int kPair>
TF_ISA_INLINE void import_value_line(const std::byte* line, std::int64_t row_bytes, int row,
                                     std::byte* out) {
  auto* to = reinterpret_cast<__m128i*>(out);
#pragma GCC unroll 8
  for (int part = 0; part < kLineParts; ++part) {
    const __m128i a = load_part(line, row_bytes, row, part);
    if constexpr (kPair == 2) {
      const __m128i b = load_part(line, row_bytes, row + 1, part);
      _mm_store_si128(to++, _mm_unpacklo_epi16(a, b));
      _mm_store_si128(to++, _mm_unpackhi_epi16(a, b));
    } else {
      _mm_store_si128(to++, a);
    }
  }
}

struct Avx2 {
  template <int kPair>
  TF_ISA_INLINE static void key_part(const std::byte* line, std::int64_t row_bytes, int part,
                                     std::byte* out) {
    constexpr int kHalfBytes = kHalfBlock * kPair * kElementBytes;
    import_part<kPair>(line, row_bytes, part, out);
    import_part<kPair>(line + kHalfBlock * row_bytes, row_bytes, part, out + kHalfBytes);
  }
  template <int kPair>
  TF_ISA_INLINE static void value_line(const std::byte* line, std::int64_t row_bytes, int row,
                                       std::byte* out) {
    import_value_line<kPair>(line, row_bytes, row, out);
  }
};

}  // namespace

const ImportKernels& import_kernels_avx2(DType type) { return import_kernels_of<Avx2>(type); }

}  // namespace triforce::cpu
