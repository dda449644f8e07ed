// Operations on rows of activations.
#pragma once
#include <cuda_runtime_api.h>

#include "triforce/tensor.h"

namespace triforce::kernels {

// out[T, D] f32 = table[tokens[T], D]; table f32, f16 or bf16, tokens i32. A token outside the
// table reads row 0: callers have checked tokens.
void embed(const TensorView& tokens, const TensorView& table, const TensorView& out,
           cudaStream_t stream);

// out[T, D] = x * rsqrt(mean(x^2) + eps) * w; x and w f32, out f32, f16 or bf16; out may be x. One
// block a row, the order of its sum fixed by D.
void rms_norm(const TensorView& x, const TensorView& w, float eps, const TensorView& out,
              cudaStream_t stream);

// out[T, F] = silu(gate) * up; gate_up[T, 2 F] holds gate, then up; f16 or bf16, in f32 inside.
void swiglu(const TensorView& gate_up, const TensorView& out, cudaStream_t stream);

// dst[n, m] = src[n, m] between f32, f16 and bf16, or any type and itself; rows may be strided.
void convert(const TensorView& src, const TensorView& dst, cudaStream_t stream);

}  // namespace triforce::kernels
