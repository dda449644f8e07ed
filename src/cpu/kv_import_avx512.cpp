// Imports in AVX-512. Offsets inside a line are constants of the unrolled loops.
#include <immintrin.h>

#include "cpu/attention_kernels.h"
#include "cpu/kv_import.h"
#include "cpu/kv_layout.h"

#define TF_ISA __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define TF_ISA_INLINE TF_ISA inline __attribute__((always_inline))

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

template <int kPair>
TF_ISA void import_keys(const std::byte* rows, const std::byte* values, int d, std::byte* out) {
  const std::int64_t row_bytes = std::int64_t{d} * kElementBytes;
  constexpr int kBlockPartBytes = kKeyBlock * kPartBytes;
  const std::byte* tile = rows;
  std::int64_t at = 0;
  for (int block = 0; block < kTileKeys / kKeyBlock; ++block, rows += kKeyBlock * row_bytes) {
    for (std::int64_t line = 0; line < row_bytes; line += kLineBytes) {
#pragma GCC unroll 8
      for (int part = 0; part < kLineParts; ++part) {
        prefetch_bytes<kBlockPartBytes>(tile + at + kImportAhead);
        prefetch_bytes<kBlockPartBytes>(values + at);
        import_part<kPair>(rows + line, row_bytes, part, out + at);
        at += kBlockPartBytes;
      }
    }
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

template <int kPair>
TF_ISA void import_values(const std::byte* rows, int d, std::byte* out) {
  const std::int64_t row_bytes = std::int64_t{d} * kElementBytes;
  const std::byte* tile = rows;
  std::int64_t at = 0;
  for (int block = 0; block < kTileKeys; block += kLineParts, rows += kLineParts * row_bytes) {
#pragma GCC unroll 8
    for (int row = 0; row < kLineParts; row += kPair) {
      for (std::int64_t line = 0; line < row_bytes; line += kLineBytes) {
        prefetch_bytes<kPair * kLineBytes>(tile + at + kImportAhead);
        import_value_line<kPair>(rows + line, row_bytes, row, out + at);
        at += kPair * kLineBytes;
      }
    }
  }
}

template <int kPair>
constexpr ImportKernels kImport = {import_keys<kPair>, import_values<kPair>};

}  // namespace

const ImportKernels& import_kernels_avx512(DType type) {
  return pairing(type) == 2 ? kImport<2> : kImport<1>;
}

}  // namespace triforce::cpu
