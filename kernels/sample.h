// Drawing and verifying tokens.
#pragma once
#include <cuda_runtime_api.h>

#include <span>

#include "triforce/backend.h"

namespace triforce::kernels {

// Backend::sample and Backend::verify: what sampling.h does, with the same numbers from Philox, by
// one block. probs[V]; p[n + 1, V], q[n, V], all f32. The result goes to `out`, device
// memory or page-locked host memory; sample() leaves accepted at 0. Sums over the vocabulary are in
// double and in an order of their own, so a draw within some 1e-13 of the boundary between two
// tokens may differ from the host's.
void sample(const TensorView& probs, const DrawKey& key, std::int64_t position,
            Acceptance acceptance, VerifyResult* out, cudaStream_t stream);
void verify(const TensorView& p, const TensorView& q, std::span<const Token> tokens,
            const DrawKey& key, std::int64_t position, const VerifyRule& rule, VerifyResult* out,
            cudaStream_t stream);

}  // namespace triforce::kernels
