// The last of several blocks to arrive goes on with what all of them wrote.
#pragma once
#include "kernels/platform.cuh"

namespace triforce::kernels {

// Called once by all threads of each of `blocks` blocks of a launch, with one counter in device
// memory. It is 0 before the launch and left so. True in the block that comes last: what any
// thread of the others wrote before its call may be read now, past the first-level cache (__ldcg).
// `is_last`: shared memory that nobody reads or writes until the block's next barrier.
//
// The barrier puts the writes of all threads before the first one's fence, and the atomic operation
// tells the last block, which fences in turn (PTX ISA, "Memory consistency model": causality
// order). Cooperative groups synchronise a grid in the same way.
TF_DEVICE bool arrives_last(unsigned* counter, unsigned blocks, unsigned* is_last) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    *is_last = atomicInc(counter, blocks - 1) == blocks - 1 ? 1 : 0;  // the last one wraps it to 0
    __threadfence();
  }
  __syncthreads();
  return *is_last != 0;
}

}  // namespace triforce::kernels
