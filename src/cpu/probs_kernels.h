// The vectorised passes of to_probs() over one row.
#pragma once
#include <cstdint>

#include "cpu/workers.h"

namespace triforce::cpu {

inline constexpr std::int64_t kProbsBlock = 64;  // ids whose maximum is kept
inline constexpr int kPivots = 3;

// Largest value and whether all are finite.
struct Scan {
  float max = -std::numeric_limits<float>::infinity();
  bool finite = true;
};

// What lies at or above each of kPivots rising logits.
struct Above {
  double mass[kPivots] = {};
  std::int64_t count[kPivots] = {};
};

// Same bits at every level.
struct ProbsKernels {
  // block_max gets the maximum of every kProbsBlock values.
  void (*scan)(const float* x, std::int64_t n, float* block_max, Scan* out);
  // out = e^((x - max) * inverse_temperature)
  void (*weights)(const float* x, std::int64_t n, float max, float inverse_temperature, float* out);
  // Sum of w >= 0, each rounded to a multiple of ulp(granule): exact in any order while the sum
  // stays below 2 granule.
  void (*total)(const float* w, std::int64_t n, double granule, double* out);
  // Count, and mass as total() has it, of the places where x is at least each pivot.
  void (*above)(const float* x, const float* w, std::int64_t n, const float* pivots, double granule,
                Above* out);
  void (*scale)(float* x, std::int64_t n, float factor);
  // ids of those x that are at least `bound`, and their values; both with room for 16 more. Blocks
  // whose maximum is below are not read.
  void (*collect)(const float* x, std::int64_t n, const float* block_max, float bound,
                  std::int32_t* ids, float* values, std::int64_t* count);
};
ProbsKernels probs_kernels(Isa isa);  // of a level that this processor has

// Returns the kernels that compilers make of vector.h.
ProbsKernels vector_probs_kernels(Isa isa);

}  // namespace triforce::cpu
