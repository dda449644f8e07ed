// The exact and the prefill path of attention share this: shapes, scratch, the loop over tiles.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/tree_rows.h"
#include "cpu/attention_kernels.h"
#include "cpu/kv_layout.h"
#include "cpu/scratch.h"
#include "cpu/workers.h"
#include "triforce/backend.h"

namespace triforce::cpu {

// The shapes and pointers of attention of one sequence. Row r of a kv head is query r / group of
// query head head * group + r % group; it sees keys [0, past + r / group + 1).
struct AttentionPass {
  const KvView* kv = nullptr;
  const AttentionKernels* kernels = nullptr;
  const AttentionKernels* wide_kernels = nullptr;  // of f32
  const float* q = nullptr;                        // [T, H, d]
  float* out = nullptr;                            // [T, H, d]
  std::int64_t q_stride = 0, out_stride = 0;       // elements between tokens
  const float* cos = nullptr;                      // [., d / 2], with rotate_on_read
  const float* sin = nullptr;
  std::int64_t queries = 0, length = 0, past = 0;  // past = length - queries
  std::int64_t older = 0;                          // of the keys, those in groups, which come first
  int group = 0, d = 0;

  std::int64_t head_rows() const { return queries * group; }
  std::int64_t query_bytes() const { return d * (kernels->bf16_queries ? 2 : 4); }
  std::int64_t horizon(std::int64_t row) const { return past + row / group + 1; }
  // Of the rows behind the groups.
  SeenRows seen_by(std::int64_t query) const { return {*kv, past - older + query}; }
  // From this key on, at the begin of a tile, queries of a draft tree see rows of their own; all
  // see those before it.
  std::int64_t common_keys() const {
    if (kv->parents == nullptr) return length;
    return std::min(past, length - kv->tree_rows) / kTileKeys * kTileKeys;
  }
};
AttentionPass make_pass(Isa isa, TensorView q, const KvView& kv, const RopeView& rope,
                        TensorView out);

// Buffers of one thread: tiles that are not read where they lie.
struct TileBuffers {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  std::byte* other = nullptr;  // rotated keys
  float* wide = nullptr;       // keys, then values, as f32; null: never widened
  int* visible = nullptr;
};
TileBuffers take_tile_buffers(Scratch& scratch, int d, std::int64_t rows);

// Online softmax of rows [first_row, first_row + rows) of one kv head over the keys so far, in base
// 2: m = max s, l = sum 2^(s - m), O = sum 2^(s - m) v for scores s = q k log2(e) / sqrt(d). Two
// such states merge by bringing both to the larger m.
struct AttentionState {
  std::int64_t first_row = 0, rows = 0;
  const std::byte* q = nullptr;
  float* o = nullptr;  // [rows, d]
  float* m = nullptr;  // [rows]
  float* l = nullptr;  // [rows, kLanes]: a row's is the sum of its lanes
};
void reset(const AttentionState& state, int d);

// A MassOutput says where a tile's chunk sums go. If sums is null, they are not wanted.
struct MassOutput {
  float* sums = nullptr;   // [tile, rows, kTileKeys / unit] at scale 2^-scale
  float* scale = nullptr;  // [tile, rows]
  int unit = 8;
};

// Row `row` of `head`, scaled by log2(e) / sqrt(d), as the kernels read it.
void prepare_query(const AttentionPass& pass, std::int64_t head, std::int64_t row, std::byte* out);

// Reads keys [begin, end) in tiles, begin a multiple of kTileKeys. Every row of the state must see
// key `begin`, or is left as it is; rows skip the tiles beyond their horizon.
void run_tiles(const AttentionPass& pass, std::int64_t head, std::int64_t begin, std::int64_t end,
               const AttentionState& state, const TileBuffers& buffers, const MassOutput& mass);
// The same over the rows behind the groups that one query sees (SeenRows), its `group` rows being
// those of the state, and no mass. begin < end <= seen.count(); the tile of row 0 begins there.
void run_seen_tiles(const AttentionPass& pass, std::int64_t head, const SeenRows& seen,
                    std::int64_t begin, std::int64_t end, const AttentionState& state,
                    const TileBuffers& buffers);

// Sum of a row's lanes, in fixed order.
float sum_lanes(const float* l);

// Rows [row, row + count) of a head to those from `to_row` on of keys and values elsewhere.
void copy_head_rows(const KvView& kv, std::int64_t head, std::int64_t row, std::byte* k,
                    std::byte* v, std::int64_t to_row, std::int64_t count);

// Of one sequence with so many queries, or of several with so many in all.
std::int64_t exact_scratch_bytes(std::int64_t queries, int heads, int kv_heads, int d,
                                 std::int64_t length, int mass_chunk, int threads);
std::int64_t prefill_scratch_bytes(int group, int d, int threads);
std::int64_t chunk_scratch_bytes(int kv_heads, std::int64_t context, int chunk);
void attention_prefill(const Workers& workers, const AttentionPass& pass);

// The threads worth waking for so much work, counted in bytes of cache read; never affects results.
Workers with_threads_for(const Workers& workers, std::int64_t work_bytes);

}  // namespace triforce::cpu
