// Attention kernels in AVX-512, f32 arithmetic.
#define TF_ISA __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")))
#include "cpu/x86/vector512.h"
//
#include "cpu/attention_codes.h"
#include "cpu/x86/kernels.h"

namespace triforce::cpu {

const AttentionKernels& attention_kernels_avx512(DType type) {
  return float_kernels<Avx512Vector>(type);
}

}  // namespace triforce::cpu
