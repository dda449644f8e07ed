// Attention of a chunk of the prompt.
#pragma once
#include <cuda_runtime_api.h>

#include "triforce/backend.h"

namespace triforce::kernels {

// Backend::attention without mass for any T; made for more than 32. q[T, H, d] and out[T, H d] of
// kv's type. A block takes a tile of queries of one head, the rows of the matrix unit's products,
// and passes over 64 keys at a time with a running maximum (FlashAttention-2, arXiv 2307.08691).
void attention_prefill(const TensorView& q, const KvView& kv, const RopeView& rope,
                       const TensorView& out, cudaStream_t stream);

}  // namespace triforce::kernels
