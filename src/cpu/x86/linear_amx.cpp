// AMX tiles for bf16 weights: 16 x 16 accumulators, 32 k per instruction. A tile of weights is 16
// pairs of k by 16 columns, which is how the panels lie in memory. A row of the product depends on
// its own row of x only, so rows keep their bits whatever the number of rows in the tile.
#include <immintrin.h>

#include <utility>

#include "cpu/x86/amx_tiles.h"
#include "cpu/x86/kernels.h"

#define TF_AMX __attribute__((target("amx-tile,amx-bf16,avx512f")))

namespace triforce::cpu {
namespace {

constexpr int kMaxRows = 16;
constexpr std::int64_t kAhead = 8192;  // bytes; two steps
constexpr std::int64_t kPairBytes = kPanel * 4;
constexpr std::int64_t kStepBytes = 16 * kPairBytes;
constexpr std::int64_t kAccBytes = kPanel * 4;

template <int R>
TF_AMX void tile(const std::byte* w, const std::byte* x, std::int64_t x_stride_bytes,
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
  _tile_stored(0, acc, kAccBytes);
  _tile_stored(1, acc + 16, kAccBytes);
  _tile_stored(2, acc + 32, kAccBytes);
  _tile_stored(3, acc + 48, kAccBytes);
  _tile_release();  // an idle tile state would be saved at every context switch
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
    k.bf16 = tile_set(std::make_integer_sequence<int, kMaxRows>());
    return k;
  }();
  return kKernels;
}

}  // namespace triforce::cpu
