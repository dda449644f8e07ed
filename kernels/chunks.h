// Which chunks of a cache matter.
#pragma once
#include <cuda_runtime_api.h>

#include "triforce/backend.h"

namespace triforce::kernels {

// Backend::score_chunks: q[H, d] of kv's type, scores[Hkv, n_chunks] f32.
void score_chunks(const TensorView& q, const KvView& kv, int chunk, std::int64_t n_chunks,
                  const TensorView& scores, cudaStream_t stream);

// Backend::top_chunks. Sorts in `workspace` (device memory, top_chunks_bytes of the scores'
// columns).
std::int64_t top_chunks_bytes(int kv_heads, std::int64_t n_chunks);
void top_chunks(const TensorView& scores, const TensorView& ids, void* workspace,
                cudaStream_t stream);

}  // namespace triforce::kernels
