// Conversions between the floating-point types of weights and activations.
#pragma once
#include <cstdint>

#include "triforce/tensor.h"

namespace triforce::cpu {

// dst[n] = src[n], converted to nearest even; f32, f16 and bf16 to each other, i32 to i32 only
// (TF_CHECK). The arrays must not overlap.
void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t n);

}  // namespace triforce::cpu
