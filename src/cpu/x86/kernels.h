// The kernels of x86-64's instruction levels, which levels.cpp chooses from.
#pragma once
#include "cpu/attention_kernels.h"
#include "cpu/linear_kernels.h"

namespace triforce::cpu {

const LinearKernels& avx2_kernels();
const LinearKernels& avx512_kernels();
const LinearKernels& avx512_bf16_kernels();
const LinearKernels& amx_kernels();

const AttentionKernels& attention_kernels_avx2(DType type);
const AttentionKernels& attention_kernels_avx512(DType type);
const AttentionKernels& attention_kernels_avx512_bf16();  // bf16 rows
const AttentionKernels& attention_kernels_amx();          // bf16 rows

// ProbsKernels::collect by the compress instruction.
void collect_avx512(const float* x, std::int64_t n, const float* block_max, float bound,
                    std::int32_t* ids, float* values, std::int64_t* count);

}  // namespace triforce::cpu
