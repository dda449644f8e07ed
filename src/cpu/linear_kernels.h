// The inner kernels of linear(): one tile = R rows of x times one panel of 64 weight rows.
//
// A panel holds 64 consecutive rows (output features) of a weight matrix, depth outermost:
//   f32, f16: [K padded to 16][64]              bf16: [K padded to 32, by pairs][64][2]
// which are oneDNN's BA16a64b and BA16a64b2a, so that its GEMM reads the same memory. Quantised
// weights lie as quantised_panel.h says. Every output element has one accumulator that takes its
// products in rising k, or the sums of groups: its bits depend neither on the other rows of a call
// nor on the thread that computes it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/rounding.h"
#include "cpu/workers.h"

namespace triforce::cpu {

inline constexpr std::int64_t kPanel = 64;
inline constexpr int kMaxTileRows = 32;

// A TileTurn says which of the tiles of a panel this is, in the order in which they read it.
// Together they ask for the weights that follow, so that memory is at work while all of them
// compute.
struct TileTurn {
  int index = 0, count = 1;
};

// acc[r][0..64) += sum over steps of x[r] * w, r < R. A step is TileSet::k_per_step
// values of k; x and w are padded with zeros to whole steps. x_stride_bytes: to the next row, or to
// the next group of kBf16Tiles.
using Tile = void (*)(const std::byte* w, const std::byte* x, std::int64_t x_stride_bytes,
                      std::int64_t steps, float* acc, TileTurn turn);

// An XFormat is how x must lie for the tiles of one weight type.
enum class XFormat : std::uint8_t {
  kF32,         // the activations as they are
  kRoundedF32,  // f32 holding bf16 values
  kBf16,        // bf16, read by pairs
  // bf16 in groups of up to 32 rows, as AMX reads them: [group][k / 32][row][32]. Rows that lie
  // apart would be a line of another page for each row of a register.
  kBf16Tiles,
};
inline constexpr std::int64_t kTileGroup = 32, kTileDepth = 32;

struct TileSet {
  XFormat x_format = XFormat::kF32;
  std::int64_t k_per_step = 1;
  int max_rows = 0;  // tiles[1..max_rows] are set
  // Weights that several tiles read one after the other before any reads what follows, so that all
  // but the first find them in the first-level cache.
  std::int64_t block_bytes = 32 * 1024;
  std::array<Tile, kMaxTileRows + 1> tiles{};
};

// [rows, width] of weights as f32, `stride` floats from row to row. A row is one depth of a panel.
using Widen = void (*)(const std::byte* w, std::int64_t rows, std::int64_t width, float* out,
                       std::int64_t stride);

// Of quantised weights.
struct CodeTiles {
  TileSet int8, int4;
};

// Steps of all blocks but the last, of at most `most`, so that the last one is as long as it can
// be. For tiles ask for as much behind a block as they read in it. After a last block of half the
// size they had asked for half of the next panel's first: 8 rows of SmolLM2's layers took 1.10
// times as long.
constexpr std::int64_t block_steps(std::int64_t steps, std::int64_t most) {
  return ceil_div(steps, ceil_div(steps, most));
}
static_assert(block_steps(288, 64) == 58 && block_steps(128, 64) == 64);

struct LinearKernels {
  TileSet f32, f16, bf16;
  CodeTiles codes, codes_bf16;  // those of f32 and f16 weights, and those of bf16 weights
  // The scalar level has none, for it multiplies panels alone.
  Widen widen_f32 = nullptr, widen_f16 = nullptr, widen_bf16 = nullptr;
  // n values to bf16 (nearest even), and the same kept as f32.
  void (*to_bf16)(const float* x, std::int64_t n, std::uint16_t* out) = nullptr;
  void (*round_bf16)(const float* x, std::int64_t n, float* out) = nullptr;
};

const LinearKernels& linear_kernels(Isa isa);  // of a level that this processor has

const LinearKernels& scalar_kernels();

}  // namespace triforce::cpu
