// AMX tiles for bf16 weights: 16 x 16 accumulators, 32 k per instruction. A tile of weights is 16
// pairs of k by 16 columns, which is how the panels lie in memory. A row of the product depends on
// its own row of x only, so rows keep their bits whatever the number of rows in the tile.
#define TF_ISA    \
  __attribute__(( \
      target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c")))
#include "cpu/x86/dot512.h"
//
#include <algorithm>
#include <utility>

#include "cpu/prefetch.h"
#include "cpu/row_formats.h"
#include "cpu/x86/amx_tiles.h"
#include "cpu/x86/kernels.h"

namespace triforce::cpu {
namespace {

constexpr int kMaxRows = 16;           // of a tile register
constexpr std::int64_t kAhead = 4096;  // bytes; a step
constexpr std::int64_t kPairBytes = kPanel * 4;
constexpr std::int64_t kStepBytes = 16 * kPairBytes;
constexpr std::int64_t kAccBytes = kPanel * 4;
constexpr std::int64_t kRowBytes = kTileDepth * 2;  // of x, in a step

// Into the first level: a pass of one row took .92 of the time that it took with prefetch_line().
TF_AVX512 void ask(const std::byte* line) {
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
}

// Registers 0 to 3 += x . w over the 32 k of a step.
TF_AVX512 void multiply_step(const std::byte* w, const std::byte* x) {
  _tile_loadd(4, x, kRowBytes);
  _tile_loadd(5, w, kPairBytes);
  _tile_dpbf16ps(0, 4, 5);
  _tile_loadd(6, w + 64, kPairBytes);
  _tile_dpbf16ps(1, 4, 6);
  _tile_loadd(7, w + 128, kPairBytes);
  _tile_dpbf16ps(2, 4, 7);
  _tile_loadd(5, w + 192, kPairBytes);
  _tile_dpbf16ps(3, 4, 5);
}

TF_AVX512 void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
// Registers 0 to 3 to acc[R][64].
TF_AVX512 void store_sums(float* acc) {
  _tile_stored(0, acc, kAccBytes);
  _tile_stored(1, acc + 16, kAccBytes);
  _tile_stored(2, acc + 32, kAccBytes);
  _tile_stored(3, acc + 48, kAccBytes);
}

// What goes with each quarter of a step, so that memory and products are at work at the same time:
// requests for the block that follows, of which the first two of several tiles ask for a half each.
class Requests {
 public:
  static constexpr std::int64_t kBlockSteps = 4;

  TF_AVX512 Requests of(const std::byte* w, std::int64_t steps, TileTurn turn) {
    if (turn.count == 1) return {w + kBlockSteps * kStepBytes, kStepBytes / 4};
    const std::byte* const half = w + (2 + turn.index) * steps * kStepBytes / 2;
    return {half, turn.index < 2 ? kStepBytes / 8 : 0};
  }
  TF_AVX512 Requests none() { return {nullptr, 0}; }
  TF_ISA_INLINE void ask() {
    for (const std::byte* const end = at + bytes; at < end; at += 64) prefetch_line(at);
  }

  const std::byte* at;
  std::int64_t bytes;
};

// Up to 16 rows: one register of x by four of weights.
template <int R>
TF_ISA void tile(const std::byte* w, const std::byte* x, std::int64_t /*x_stride_bytes*/,
                 std::int64_t steps, float* acc, TileTurn turn) {
  static constexpr TileConfig kConfig = make_tile_config(R);
  Requests requests = Requests::of(w, steps, turn);
  _tile_loadconfig(&kConfig);
  _tile_loadd(0, acc, kAccBytes);
  _tile_loadd(1, acc + 16, kAccBytes);
  _tile_loadd(2, acc + 32, kAccBytes);
  _tile_loadd(3, acc + 48, kAccBytes);
  for (std::int64_t s = 0; s < steps; ++s, w += kStepBytes, x += R * kRowBytes) {
    if (turn.index == 0) {
      for (std::int64_t line = 0; line < kStepBytes; line += 64) ask(w + kAhead + line);
    } else {
      for (int quarter = 0; quarter < 4; ++quarter) requests.ask();
    }
    multiply_step(w, x);
  }
  store_sums(acc);
  _tile_release();  // an idle tile state would be saved at every context switch
}

// Registers 0 to 3 += x . w over the 32 k of a step: 17 to 32 rows, two registers of x, by half of
// the columns, so that a weight is loaded once for all.
template <int R>
TF_ISA_INLINE void multiply_pair(const std::byte* w, const std::byte* x, Requests& requests) {
  _tile_loadd(4, x, kRowBytes);
  _tile_loadd(5, x + kMaxRows * kRowBytes, kRowBytes);
  requests.ask();
  _tile_loadd(6, w, kPairBytes);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(2, 5, 6);
  requests.ask();
  _tile_loadd(7, w + 64, kPairBytes);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(3, 5, 7);
}
// Registers 0 to 3 to half of the columns of acc[R][64].
TF_AVX512 void store_pair(float* acc) {
  _tile_stored(0, acc, kAccBytes);
  _tile_stored(1, acc + 16, kAccBytes);
  _tile_stored(2, acc + kMaxRows * kPanel, kAccBytes);
  _tile_stored(3, acc + kMaxRows * kPanel + 16, kAccBytes);
}

// 17 to 32 rows. The halves of the columns take turns, a block of the depth after the other.
template <int R>
TF_ISA void pair_tile(const std::byte* w, const std::byte* x, std::int64_t /*x_stride_bytes*/,
                      std::int64_t steps, float* acc, TileTurn turn) {
  static constexpr TileConfig kConfig = make_pair_config(kMaxRows, R - kMaxRows);
  Requests requests = Requests::of(w, steps, turn);
  _tile_loadconfig(&kConfig);
  for (std::int64_t first = 0; first < steps; first += Requests::kBlockSteps) {
    const std::int64_t last = std::min(first + Requests::kBlockSteps, steps);
    for (std::int64_t half = 0; half < 2; ++half) {
      float* const sums = acc + half * kPanel / 2;
      _tile_loadd(0, sums, kAccBytes);
      _tile_loadd(1, sums + 16, kAccBytes);
      _tile_loadd(2, sums + kMaxRows * kPanel, kAccBytes);
      _tile_loadd(3, sums + kMaxRows * kPanel + 16, kAccBytes);
      for (std::int64_t s = first; s < last; ++s) {
        multiply_pair<R>(w + s * kStepBytes + half * kPairBytes / 2, x + s * R * kRowBytes,
                         requests);
      }
      store_pair(sums);
    }
  }
  _tile_release();
}

// Codes of one group become bf16 in the first-level cache, [32 pairs of k][64 columns][2], where a
// tile register can load them.
template <int kBits>
TF_ISA inline void widen_group(const std::uint32_t* words, std::uint16_t* to) {
  using Format = DotCodeFormat<kBits>;
  for (std::int64_t row = 0; row < kWeightGroup * kBits / 32; ++row, words += kPanel) {
    for (int j = 0; j < kPanel; j += kLanes) {
      prefetch_line(reinterpret_cast<const char*>(words + j) + kAhead);
#pragma GCC unroll 4
      for (int part = 0; part < Format::kParts; ++part) {
        _mm512_store_si512(to + (row * Format::kParts + part) * kPanel * 2 + j * 2,
                           reinterpret_cast<__m512i>(Format::load(words + j, part)));
      }
    }
  }
}

// sums[R][64] = x . w over the two steps of a group of widened codes.
template <int R>
TF_ISA_INLINE void multiply_group(const std::byte* w, const std::byte* x, float* sums) {
  if constexpr (R <= kMaxRows) {
    zero_sums();
    multiply_step(w, x);
    multiply_step(w + kStepBytes, x + R * kRowBytes);
    store_sums(sums);
  } else {
    Requests none = Requests::none();
    for (std::int64_t half = 0; half < 2; ++half, w += kPairBytes / 2) {
      zero_sums();
      multiply_pair<R>(w, x, none);
      multiply_pair<R>(w + kStepBytes, x + R * kRowBytes, none);
      store_pair(sums + half * kPanel / 2);
    }
  }
}

template <int kBits, int R>
TF_ISA void code_tile(const std::byte* w, const std::byte* x, std::int64_t /*x_stride_bytes*/,
                      std::int64_t steps, float* acc, TileTurn /*turn*/) {
  static constexpr TileConfig kConfig =
      R <= kMaxRows ? make_tile_config(R) : make_pair_config(kMaxRows, R - kMaxRows);
  constexpr std::int64_t kGroupElements = kWeightGroup * kPanel;
  // Two groups: the second one's stores do not wait for the first one's loads.
  alignas(64) std::uint16_t widened[2][kGroupElements];
  alignas(64) float sums[R * kPanel];
  _tile_loadconfig(&kConfig);
  for (std::int64_t s = 0; s < steps;
       ++s, w += kQuantisedStepBytes<kBits>, x += 2 * R * kRowBytes) {
    std::uint16_t* const weights = widened[s % 2];
    widen_group<kBits>(reinterpret_cast<const std::uint32_t*>(w + kScaleBytes), weights);
    __asm__ volatile("" ::: "memory");  // gcc's tile loads do not say that they read memory
    multiply_group<R>(reinterpret_cast<const std::byte*>(weights), x, sums);
    const auto* scales = reinterpret_cast<const std::uint16_t*>(w);
    for (int j = 0; j < kPanel; j += kLanes) {
      const __m512 scale = Avx512Vector::load(scales + j);
      for (int r = 0; r < R; ++r) {
        float* const to = acc + r * kPanel + j;
        _mm512_storeu_ps(
            to, _mm512_fmadd_ps(_mm512_load_ps(sums + r * kPanel + j), scale, _mm512_loadu_ps(to)));
      }
    }
  }
  _tile_release();
}

template <int kBits, int... kRows>
TileSet code_tiles(std::integer_sequence<int, kRows...> /*rows*/) {
  return {.x_format = XFormat::kBf16Tiles,
          .k_per_step = kWeightGroup,
          .max_rows = 2 * kMaxRows,
          .tiles = {nullptr, code_tile<kBits, kRows + 1>...}};
}

template <int R>
constexpr Tile tile_of_rows() {
  if constexpr (R <= kMaxRows) return tile<R>;
  return pair_tile<R>;
}

template <int... kRows>
TileSet tile_set(std::integer_sequence<int, kRows...> /*rows*/) {
  return {.x_format = XFormat::kBf16Tiles,
          .k_per_step = 32,
          .max_rows = 2 * kMaxRows,
          .tiles = {nullptr, tile_of_rows<kRows + 1>()...}};
}

}  // namespace

const LinearKernels& amx_kernels() {
  static const LinearKernels kKernels = [] {
    LinearKernels k = avx512_bf16_kernels();
    constexpr std::make_integer_sequence<int, 2 * kMaxRows> kRows;
    k.bf16 = tile_set(kRows);
    k.codes_bf16 = {.int8 = code_tiles<8>(kRows), .int4 = code_tiles<4>(kRows)};
    return k;
  }();
  return kKernels;
}

}  // namespace triforce::cpu
