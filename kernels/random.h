// Random weights.
#pragma once
#include <cuda_runtime_api.h>

#include "triforce/random.h"
#include "triforce/tensor.h"

namespace triforce::kernels {

// Backend::random_values; out contiguous f32.
void random_values(const TensorView& out, const DrawKey& key, std::int64_t first, double scale,
                   cudaStream_t stream);

}  // namespace triforce::kernels
