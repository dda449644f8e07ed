// The kernels of 64-bit Arm's instruction levels, which levels.cpp chooses from.
#pragma once
#include "cpu/attention_kernels.h"
#include "cpu/linear_kernels.h"

namespace triforce::cpu {

const LinearKernels& neon_kernels();
const AttentionKernels& attention_kernels_neon(DType type);

}  // namespace triforce::cpu
