// Sums, maxima and the like over a block, in an order that only the block's size fixes.
#pragma once
#include "kernels/platform.cuh"

namespace triforce::kernels {

// All 32 lanes' values combined, the same in every lane; op is commutative.
template <class V, class Op>
TF_DEVICE V warp_reduce(V value, const Op& op) {
  for (int mask = 16; mask > 0; mask /= 2)
    value = op(value, __shfl_xor_sync(0xffffffffU, value, mask));
  return value;
}

// All threads' values combined, the same in every thread: inside warps, then over warps in order.
// `scratch`: shared memory for one value a warp. May follow itself at once.
template <class V, class Op>
TF_DEVICE V block_reduce(V value, V* scratch, const Op& op) {
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  value = warp_reduce(value, op);
  __syncthreads();  // scratch may still be read for the one before
  if (threadIdx.x % 32 == 0) scratch[warp] = value;
  __syncthreads();
  V all = scratch[0];
  for (int w = 1; w < warps; ++w) all = op(all, scratch[w]);
  return all;
}

// The same by a tree over the warps, too, which takes a block of many less time; of a power of two
// of warps.
template <class V, class Op>
TF_DEVICE V block_reduce_tree(V value, V* scratch, const Op& op) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warps = static_cast<int>(blockDim.x) / 32;
  value = warp_reduce(value, op);
  __syncthreads();  // scratch may still be read for the one before
  if (lane == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  V all = scratch[lane % warps];
  for (int mask = warps / 2; mask > 0; mask /= 2)
    all = op(all, __shfl_xor_sync(0xffffffffU, all, mask));
  return all;
}

struct Add {
  template <class V>
  TF_DEVICE V operator()(V a, V b) const {
    return a + b;
  }
};
struct Min {
  template <class V>
  TF_DEVICE V operator()(V a, V b) const {
    return a < b ? a : b;
  }
};
struct Max {
  template <class V>
  TF_DEVICE V operator()(V a, V b) const {
    return a > b ? a : b;
  }
};

}  // namespace triforce::kernels
