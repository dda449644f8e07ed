// The inner kernels of attention, one table per instruction level and row format.
#pragma once
#include <cstdint>

#include "cpu/workers.h"
#include "triforce/tensor.h"

namespace triforce::cpu {

// Keys per tile: one step of the online softmax. 64 keys of 64 dimensions in bf16 are 16 KiB of K
// and V, half of a first-level cache.
inline constexpr int kTileKeys = 64;
// Keys per split: the unit of parallel work, and of the order in which a row is summed.
inline constexpr int kSplitKeys = 512;
inline constexpr std::int64_t kLeastPromptRows = 64, kMostPromptRows = 256;

// Consecutive tiles of keys against `rows` queries; o, m and l carry the online softmax from tile
// to tile. Every row is computed independently of the others.
struct TileArgs {
  const std::byte* k = nullptr;  // tiles * kTileKeys rows in the layout of kv_layout.h
  const std::byte* v = nullptr;  // masked rows must be finite
  int tiles = 1;
  // Prefetched meanwhile, as many bytes as the tiles have; null: nothing.
  const std::byte* next_k = nullptr;
  const std::byte* next_v = nullptr;
  int d = 0;
  int rows = 0;
  const std::byte* q = nullptr;  // [rows, d] log2(e) / sqrt(d) q, f32 or bf16 (bf16_queries)
  float* o = nullptr;            // [rows, d] sum of p v
  float* m = nullptr;            // [rows] largest score so far
  float* l = nullptr;            // [rows, kLanes] sum of p in lanes
  // [rows] leading keys of the tile a row sees, 1..kTileKeys; null: all. Only with one tile.
  const int* visible = nullptr;
  float* mass = nullptr;    // [tiles, rows, kTileKeys / mass_unit] p summed by unit at scale 2^-m
  float* mass_m = nullptr;  // [tiles, rows] that m
  int mass_unit = 8;        // 8 or 1
};

// Keys or values of a group (kv_groups.h): a depth is a dimension of keys or a token of values,
// whose codes share a scale and a zero.
struct CodeTile {
  const std::uint32_t* words = nullptr;
  const std::uint16_t* scales = nullptr;  // [depths] f16
  const std::uint16_t* zeros = nullptr;   // [depths] f16
  int depths = 0;                         // at most kMaxHeadDim
  int blocks = 0;                         // of 16 words each
  std::int64_t row_words = 0,
               block_words = 0;  // words to the next ones in depth, to the next block
  std::int64_t bytes = 0;        // to the next group, which is prefetched meanwhile

  void advance() {
    words += bytes / 4;
    scales += bytes / 2;
    zeros += bytes / 2;
  }
};

struct AttentionKernels {
  void (*tiles)(const TileArgs& args);
  // out[blocks * 16] = q[d] . k of `blocks` key blocks, each sum in f32 in rising dimension.
  void (*dots)(const std::byte* k, const float* q, int d, std::int64_t blocks, float* out);
  // Sums over the rows of one tile, each brought to its final maximum and sum: sums[units] of row 0
  // = sum over r of 2^(m[r] - row_m[r]) row_inverse[r] sums[r, units]. units is a multiple of 8.
  void (*collapse)(const float* m, const float* row_m, const float* row_inverse, std::int64_t rows,
                   int units, float* sums);
  // Rotates one key block: lane t by row rows[t] of cos and sin [., d / 2].
  void (*rotate)(const std::byte* k, const float* cos, const float* sin, const std::int32_t* rows,
                 int d, std::byte* out);
  bool bf16_queries = false;
  // [rows, width] of 16-bit keys or values as f32, `stride` floats from row to row. Null where the
  // kernels multiply them as they are.
  void (*widen)(const std::byte* from, std::int64_t rows, std::int64_t width, float* out,
                std::int64_t stride) = nullptr;
  // As tiles() of groups of codes, of which k and v are the first: args.k and args.v are not read.
  // `visible` and `mass` are null.
  void (*int8_groups)(const TileArgs& args, const CodeTile& k, const CodeTile& v) = nullptr;
  void (*int4_groups)(const TileArgs& args, const CodeTile& k, const CodeTile& v) = nullptr;
  // Rows of a prompt that share a read of each tile, at most. Their queries and sums stay in the
  // second-level cache.
  std::int64_t prompt_rows = kLeastPromptRows;
};

// Returns the kernels of a level that this processor has, for a row format.
const AttentionKernels& attention_kernels(Isa isa, DType type);

const AttentionKernels& attention_kernels_scalar(DType type);

}  // namespace triforce::cpu
