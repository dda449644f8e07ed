// Imports in AVX-512. Offsets inside a line are constants of the unrolled loops.
#include <immintrin.h>

#define TF_ISA __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#include "cpu/kv_import_tile.h"

namespace triforce::cpu {
namespace {

constexpr int kVectorBytes = 64;
constexpr int kHalfParts = kLineParts / 2;  // one vector

// One part of rows i, i + 4, i + 8 and i + 12 of a key block. A masked broadcast is a load and a
// blend; an insertion would take the port that all shuffles need.
TF_ISA_INLINE __m512i load_every_fourth(const std::byte* line, std::int64_t row_bytes, int i,
                                        int part) {
  const auto load = [&](int row) __attribute__((always_inline)) {
    return _mm_loadu_si128(
        reinterpret_cast<const __m128i*>(line + part_offset(row_bytes, row, part)));
  };
  __m512i x = _mm512_castsi128_si512(load(i));
  x = _mm512_mask_broadcast_i32x4(x, 0x00f0, load(i + 4));
  x = _mm512_mask_broadcast_i32x4(x, 0x0f00, load(i + 8));
  return _mm512_mask_broadcast_i32x4(x, 0xf000, load(i + 12));
}

struct alignas(kVectorBytes) WordOrder {
  std::uint16_t from[kVectorBytes / 2];
};
constexpr WordOrder kEvenThenOdd = [] {
  WordOrder order{};
  for (int i = 0; i < 32; ++i) order.from[i] = static_cast<std::uint16_t>(2 * i % 32 + i / 16);
  return order;
}();

// A part of a key block is a table of 16 rows by 4 pairs of dimensions, turned into 4 by 16.
template <int kPair>
TF_ISA_INLINE void import_part(const std::byte* line, std::int64_t row_bytes, int part,
                               std::byte* out) {
  const __m512i a = load_every_fourth(line, row_bytes, 0, part);
  const __m512i b = load_every_fourth(line, row_bytes, 1, part);
  const __m512i c = load_every_fourth(line, row_bytes, 2, part);
  const __m512i e = load_every_fourth(line, row_bytes, 3, part);
  const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
  const __m512i ce_low = _mm512_unpacklo_epi32(c, e), ce_high = _mm512_unpackhi_epi32(c, e);
  const __m512i pairs[] = {
      _mm512_unpacklo_epi64(ab_low, ce_low), _mm512_unpackhi_epi64(ab_low, ce_low),
      _mm512_unpacklo_epi64(ab_high, ce_high), _mm512_unpackhi_epi64(ab_high, ce_high)};
  const __m512i apart = _mm512_load_si512(kEvenThenOdd.from);
  for (const __m512i pair : pairs) {
    _mm512_store_si512(out, kPair == 2 ? pair : _mm512_permutexvar_epi16(apart, pair));
    out += kVectorBytes;
  }
}

// Half a line of row `row`, its parts in order. In memory part p of them lies at p ^ (row mod 4);
// `order` is that of their quadwords where row mod 4 is 0.
TF_ISA_INLINE __m512i load_half(const std::byte* line, std::int64_t row_bytes, int row, int half,
                                __m512i order) {
  const std::byte* from =
      line + part_offset(row_bytes, row / 4 * 4, half * kHalfParts) + row % 4 * row_bytes;
  return _mm512_permutexvar_epi64(_mm512_xor_si512(order, _mm512_set1_epi64(row % 4 * 2)),
                                  _mm512_loadu_si512(from));
}

// The line of rows row to row + kPair - 1 of 8.
template <int kPair>
TF_ISA_INLINE void import_value_line(const std::byte* line, std::int64_t row_bytes, int row,
                                     std::byte* out) {
  // Unpacking takes the even quadwords, then the odd ones.
  const __m512i order = kPair == 2 ? _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7)
                                   : _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m512i a = load_half(line, row_bytes, row, half, order);
    if constexpr (kPair == 2) {
      const __m512i b = load_half(line, row_bytes, row + 1, half, order);
      _mm512_store_si512(out, _mm512_unpacklo_epi16(a, b));
      _mm512_store_si512(out + kVectorBytes, _mm512_unpackhi_epi16(a, b));
    } else {
      _mm512_store_si512(out, a);
    }
    out += kPair * kVectorBytes;
  }
}

struct Avx512 {
  template <int kPair>
  TF_ISA_INLINE static void key_part(const std::byte* line, std::int64_t row_bytes, int part,
                                     std::byte* out) {
    import_part<kPair>(line, row_bytes, part, out);
  }
  template <int kPair>
  TF_ISA_INLINE static void value_line(const std::byte* line, std::int64_t row_bytes, int row,
                                       std::byte* out) {
    import_value_line<kPair>(line, row_bytes, row, out);
  }
};

}  // namespace

const ImportKernels& import_kernels_avx512(DType type) { return import_kernels_of<Avx512>(type); }

}  // namespace triforce::cpu
