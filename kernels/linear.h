// Linear layers of few rows.
#pragma once
#include <cuda_runtime_api.h>

#include "kernels/pack.h"
#include "triforce/tensor.h"

namespace triforce::kernels {

// out[T, N] (+)= x[T, K] w^T for T of 1 to 32: at the speed at which w can be read. x of w's type,
// out of that type or f32; accumulate only into f32, one addition of the finished sum. The bits of
// a row do not depend on T: eight warps take every eighth tile of k, and their sums are added in
// order.
void linear(const TensorView& x, const PackedMatrix& w, const TensorView& out, bool accumulate,
            cudaStream_t stream);

}  // namespace triforce::kernels
