// How many kernels a pass is: what a GPU does between two of them takes time of its own.
#pragma once

namespace triforce {

// Kernels of a pass of LlamaModel over up to kMaxBatchInvariantRows rows on the CUDA backend, with
// logits, one rank, and a cache in one run of KV heads a layer. A layer: norm, q k v, RoPE with
// append, attention over splits and their sum, output projection, norm, gate and up, SwiGLU, down.
inline constexpr int kKernelsOfLayer = 10;
// Besides the layers: embedding, last norm, logits.
inline constexpr int kKernelsOfEnds = 3;
constexpr int pass_kernels(int layers) { return layers * kKernelsOfLayer + kKernelsOfEnds; }

}  // namespace triforce
