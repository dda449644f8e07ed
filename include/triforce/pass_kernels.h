// How many kernels a decoding pass is on a CUDA device: what plans and checks count gaps by.
#pragma once
#include <cstdint>

namespace triforce {

// Of each layer: a norm, qkv with RoPE and append, attention, out, a norm, gate and up with SwiGLU,
// down; where ranks share the model, after out and down the addition of what they gathered. A norm
// is a kernel of its own: where every block of the product after it made it, an H200 took 2.2 us
// longer for a row and 4.3 us for two. Norms of heads come between qkv and RoPE, which are then two
// kernels.
constexpr std::int64_t kernels_per_layer(int ranks = 1, bool head_norms = false) {
  return 7 + (ranks > 1 ? 2 : 0) + (head_norms ? 2 : 0);
}

// Of a pass over 1 to kMaxBatchInvariantRows rows that wants logits of all, over a cache whose
// heads are near, of a model whose intermediate features on a rank are a multiple of 16: the
// embedding, the layers, the last norm and the head. What gathers is not counted. Where the rows of
// all query heads of a KV head are more than 32, attention is two kernels. Far heads come one run
// after another, each with kernels of its own that fetch it and for attention.
constexpr std::int64_t pass_kernels(int layers, int ranks = 1, bool head_norms = false) {
  return layers * kernels_per_layer(ranks, head_norms) + 3;
}

}  // namespace triforce
