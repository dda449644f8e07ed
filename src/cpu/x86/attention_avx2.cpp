// Attention kernels of 16 floats in two AVX2 registers.
#define TF_ISA __attribute__((target("avx2,fma,f16c")))
#include "cpu/x86/vector_avx2.h"
//
#include "cpu/attention_codes.h"
#include "cpu/x86/kernels.h"

namespace triforce::cpu {

const AttentionKernels& attention_kernels_avx2(DType type) {
  return float_kernels<Avx2Vector>(type);
}

}  // namespace triforce::cpu
