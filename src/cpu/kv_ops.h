// The KV ops of the CPU backend: what CpuBackend forwards to. Contracts are those of Backend
// (triforce/backend.h), which checks them; where they take one KvView, of one sequence without
// padding. Activations are f32 and contiguous.
#pragma once
#include <cstdint>
#include <span>

#include "cpu/kv_layout.h"
#include "cpu/workers.h"
#include "triforce/backend.h"

namespace triforce::cpu {

// Bytes of Workers::scratch the ops below need for passes of this shape. With chunk_size not a
// multiple of 8, attention mass needs room for every key instead of every eighth.
std::int64_t kv_scratch_bytes(const Backend::ScratchShape& shape, int threads);
// Returns those of attention() of up to kMaxBatchInvariantRows queries alone.
std::int64_t attention_scratch_bytes(const Backend::ScratchShape& shape, int threads);

void rope_append(const Workers& workers, TensorView qkv, TensorView positions, const RopeView& rope,
                 TensorView q, const KvView& kv);

// Up to kMaxBatchInvariantRows queries of a sequence: keys are cut at absolute multiples of
// kSplitKeys, a split is read in tiles of kTileKeys with an online softmax, and the splits of a row
// are summed in rising order, so a row's bits depend on nothing but its own query and keys. More
// queries: the same tiles over all keys at once, not bit-identical to the former. Rounding beyond
// f32 at Isa::kAvx512Bf16 with bf16 rows: the scaled query and the probabilities are rounded to
// bf16 (relative 2^-8 each at most), the row sum is that of the rounded probabilities.
void attention(const Workers& workers, TensorView q, std::span<const KvView> sequences,
               const RopeView& rope, TensorView out, std::span<const TensorView> mass, int chunk,
               RowPath path);

void score_chunks(const Workers& workers, TensorView q, const KvView& kv, int chunk,
                  std::int64_t n_chunks, TensorView scores, ChunkRule rule);
// NaN scores rank last.
void top_chunks(const Workers& workers, TensorView scores, TensorView ids);
void gather_chunks(const Workers& workers, const KvView& src, TensorView ids, int chunk,
                   const KvView& dst, const ExpandedKeys& expanded = {});
void read_keys(const Workers& workers, const KvView& src, std::int64_t row, std::int64_t count,
               const RopeView& rope, TensorView out);
void mean_keys(const Workers& workers, const KvView& src, int chunk, std::int64_t first,
               std::int64_t count, const KvView& dst);
void expand_keys(const Workers& workers, const LowRankKeys& keys, TensorView ids, int chunk,
                 std::int64_t first, const RopeView& rope, const KvView& dst);
void copy_rows(const Workers& workers, const KvView& src, std::int64_t src_row, const KvView& dst,
               std::int64_t dst_row, std::int64_t count);
void quantise_rows(const Workers& workers, const KvView& src, std::int64_t src_row,
                   const KvView& dst, std::int64_t group, std::int64_t count);

}  // namespace triforce::cpu
