// The step between a layer's first product and its attention.
#pragma once
#include <cuda_runtime_api.h>

#include "triforce/backend.h"

namespace triforce::kernels {

// Backend::rope_append: qkv[T, (H + 2 Hkv) d] and q[T, H, d] of kv's type, positions[T] i32. Angles
// in f32, results rounded once.
void rope_append(const TensorView& qkv, const TensorView& positions, const RopeView& rope,
                 const TensorView& q, const KvView& kv, cudaStream_t stream);

}  // namespace triforce::kernels
