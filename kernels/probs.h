// From logits to probs.
#pragma once
#include <cuda_runtime_api.h>

#include "triforce/backend.h"

namespace triforce::kernels {

// Backend::to_probs; logits and probs [T, V] f32, not the same memory. One block a row. Ids rank by
// falling logit, lower id first among equals; the cuts of top-k and top-p are found by radix
// selection and are those that sorting would find: weights are summed as whole multiples of
// 2^-52 V, so that every order of summation gives the same.
void to_probs(const TensorView& logits, const SamplingParams& params, const TensorView& probs,
              cudaStream_t stream);

}  // namespace triforce::kernels
