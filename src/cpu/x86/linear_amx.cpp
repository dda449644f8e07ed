// AMX tiles for bf16 weights: 16 x 16 accumulators, 32 k per instruction. A tile of weights is 16
// pairs of k by 16 columns, which is how the panels lie in memory. A row of the product depends on
// its own row of x only, so rows keep their bits whatever the number of rows in the tile.
#define TF_ISA    \
  __attribute__(( \
      target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c")))
#include "cpu/x86/dot512.h"
//
#include <utility>

#include "cpu/prefetch.h"
#include "cpu/quantised_panel.h"
#include "cpu/x86/amx_tiles.h"
#include "cpu/x86/kernels.h"

namespace triforce::cpu {
namespace {

constexpr int kMaxRows = 16;
constexpr std::int64_t kAhead = 4096;  // bytes; a step
constexpr std::int64_t kPairBytes = kPanel * 4;
constexpr std::int64_t kStepBytes = 16 * kPairBytes;
constexpr std::int64_t kAccBytes = kPanel * 4;

// Registers 0 to 3 += x . w over the 32 k of a step.
TF_AVX512 void multiply_step(const std::byte* w, const std::byte* x, std::int64_t x_stride_bytes) {
  _tile_loadd(4, x, x_stride_bytes);
  _tile_loadd(5, w, kPairBytes);
  _tile_dpbf16ps(0, 4, 5);
  _tile_loadd(6, w + 64, kPairBytes);
  _tile_dpbf16ps(1, 4, 6);
  _tile_loadd(7, w + 128, kPairBytes);
  _tile_dpbf16ps(2, 4, 7);
  _tile_loadd(5, w + 192, kPairBytes);
  _tile_dpbf16ps(3, 4, 5);
}
// Registers 0 to 3 to acc[R][64].
TF_AVX512 void store_sums(float* acc) {
  _tile_stored(0, acc, kAccBytes);
  _tile_stored(1, acc + 16, kAccBytes);
  _tile_stored(2, acc + 32, kAccBytes);
  _tile_stored(3, acc + 48, kAccBytes);
}

template <int R>
TF_ISA void tile(const std::byte* w, const std::byte* x, std::int64_t x_stride_bytes,
                 std::int64_t steps, float* acc, TileTurn turn) {
  static constexpr TileConfig kConfig = make_tile_config(R);
  _tile_loadconfig(&kConfig);
  _tile_loadd(0, acc, kAccBytes);
  _tile_loadd(1, acc + 16, kAccBytes);
  _tile_loadd(2, acc + 32, kAccBytes);
  _tile_loadd(3, acc + 48, kAccBytes);
  for (std::int64_t s = 0; s < steps; ++s, w += kStepBytes, x += 64) {
    if (turn.index == 0) {
      for (std::int64_t line = 0; line < kStepBytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(w + kAhead + line), _MM_HINT_T0);
      }
    }
    multiply_step(w, x, x_stride_bytes);
  }
  store_sums(acc);
  _tile_release();  // an idle tile state would be saved at every context switch
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

template <int kBits, int R>
TF_ISA void code_tile(const std::byte* w, const std::byte* x, std::int64_t x_stride_bytes,
                      std::int64_t steps, float* acc, TileTurn /*turn*/) {
  static constexpr TileConfig kConfig = make_tile_config(R);
  constexpr std::int64_t kGroupElements = kWeightGroup * kPanel;
  // Two groups: the second one's stores do not wait for the first one's loads.
  alignas(64) std::uint16_t widened[2][kGroupElements];
  alignas(64) float sums[R * kPanel];
  _tile_loadconfig(&kConfig);
  for (std::int64_t s = 0; s < steps; ++s, w += kQuantisedStepBytes<kBits>, x += 2 * 64) {
    std::uint16_t* const weights = widened[s % 2];
    widen_group<kBits>(reinterpret_cast<const std::uint32_t*>(w + kScaleBytes), weights);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (std::int64_t half = 0; half < 2; ++half) {
      const auto* from = reinterpret_cast<const std::byte*>(weights) + half * kStepBytes;
      multiply_step(from, x + half * 64, x_stride_bytes);
    }
    store_sums(sums);
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
  return {.x_format = XFormat::kBf16,
          .k_per_step = kWeightGroup,
          .max_rows = kMaxRows,
          .tiles = {nullptr, code_tile<kBits, kRows + 1>...}};
}

template <int... kRows>
TileSet tile_set(std::integer_sequence<int, kRows...> /*rows*/) {
  return {.x_format = XFormat::kBf16,
          .k_per_step = 32,
          .max_rows = kMaxRows,
          .tiles = {nullptr, tile<kRows + 1>...}};
}

}  // namespace

const LinearKernels& amx_kernels() {
  static const LinearKernels kKernels = [] {
    LinearKernels k = avx512_bf16_kernels();
    constexpr std::make_integer_sequence<int, kMaxRows> kRows;
    k.bf16 = tile_set(kRows);
    k.codes_bf16 = {.int8 = code_tiles<8>(kRows), .int4 = code_tiles<4>(kRows)};
    return k;
  }();
  return kKernels;
}

}  // namespace triforce::cpu
