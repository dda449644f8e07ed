// Attention of a few new tokens over a long cache.
#pragma once
#include <cuda_runtime_api.h>

#include "triforce/backend.h"

namespace triforce::kernels {

// Rows of queries one block computes: T times the group of query heads of a KV head; more come in
// further blocks, which read the keys again.
inline constexpr int kAttentionRows = 32;

// Tokens of a split: a multiple of 64 that gives a device of `multiprocessors` a few blocks of
// equal work each. A pure function, so that bits depend on the cache alone and not on its length.
std::int64_t split_tokens(int multiprocessors, int kv_heads, std::int64_t capacity);

// Bytes of workspace for T queries of H heads over caches of that capacity.
std::int64_t attention_bytes(std::int64_t queries, int heads, int kv_heads, int head_dim,
                             std::int64_t capacity, std::int64_t split, bool mass);

// The same for every cache of up to that capacity, cut by split_tokens().
std::int64_t max_attention_bytes(int multiprocessors, std::int64_t queries, int heads, int kv_heads,
                                 int head_dim, std::int64_t capacity, bool mass);

// Backend::attention for T of 1 to 32: q[T, H, d] and out[T, H d] of kv's type. Keys are the rows
// of the matrix unit's product and queries its columns. The cache is cut at multiples of `split`; a
// block takes 64 keys at a time, 16 a warp; sums of warps and of splits are added in order. So the
// bits of a row depend neither on T nor on what comes after it. mass.data set: mass[Hkv, n] f32
// receives the probability of each chunk, by a second pass over the keys.
void attention(const TensorView& q, const KvView& kv, const RopeView& rope, const TensorView& out,
               const TensorView& mass, int chunk, std::int64_t split, void* workspace,
               cudaStream_t stream);

}  // namespace triforce::kernels
