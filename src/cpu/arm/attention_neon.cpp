// Attention kernels of 16 floats in four NEON registers.
#define TF_ISA
#include "cpu/arm/vector_neon.h"
//
#include "cpu/arm/kernels.h"
#include "cpu/attention_codes.h"

namespace triforce::cpu {

const AttentionKernels& attention_kernels_neon(DType type) {
  return float_kernels<NeonVector>(type);
}

}  // namespace triforce::cpu
