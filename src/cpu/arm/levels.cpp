// 64-bit Arm's instruction levels: every such processor has NEON.
#include "cpu/arm/kernels.h"
#include "cpu/probs_kernels.h"

namespace triforce::cpu {

std::span<const Isa> usable_isas() {
  static constexpr std::array kLevels{Isa::kScalar, Isa::kNeon};
  return kLevels;
}

Isa best_isa() { return usable_isas().back(); }

const LinearKernels& linear_kernels(Isa isa) {
  return isa == Isa::kNeon ? neon_kernels() : scalar_kernels();
}

const AttentionKernels& attention_kernels(Isa isa, DType type) {
  return isa == Isa::kNeon ? attention_kernels_neon(type) : attention_kernels_scalar(type);
}

ProbsKernels probs_kernels(Isa isa) { return vector_probs_kernels(isa); }

}  // namespace triforce::cpu
