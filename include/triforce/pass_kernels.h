// How many kernels a decoding pass is on a CUDA device: what plans and checks count gaps by.
#pragma once
#include <cstdint>

namespace triforce {

// Rows whose norms the products after them make themselves (kernels/kernels.h: linear()): those of
// baseline, drafter and inner verification of one draft. A block reads 4 bytes of x for every
// element instead of 2 and once more the norm's weights, which hides behind its 128 or 256 KiB of
// weights of a 7B layer as long as L2 gives 1.2 times what DRAM does (H200: about 5.5 to 4.3 TB/s);
// it needs 16 registers and some 200 issue slots a scheduler for each row, and saves a kernel of 2
// to 3 us. From three rows on there is a kernel for norms.
inline constexpr int kMaxNormedRows = 2;

// Of each layer: qkv with RoPE and append, attention, out, gate and up with SwiGLU, down; before
// the first and the fourth a norm, unless it is made in them; where ranks share the model, after
// out and down the addition of what they gathered.
constexpr std::int64_t kernels_per_layer(std::int64_t rows, int ranks = 1) {
  return (rows <= kMaxNormedRows ? 5 : 7) + (ranks > 1 ? 2 : 0);
}

// Of a pass over `rows` rows (1 to kMaxBatchInvariantRows) that wants logits of all, over a cache
// whose heads are near, of a model whose intermediate features on a rank are a multiple of 16: the
// embedding, the layers, the last norm and the head. What gathers is not counted. Far heads come
// one run after another, each with kernels of its own that fetch it and for attention.
constexpr std::int64_t pass_kernels(int layers, std::int64_t rows, int ranks = 1) {
  return layers * kernels_per_layer(rows, ranks) + (rows <= kMaxNormedRows ? 2 : 3);
}

}  // namespace triforce
