// The probe measures what this machine can do: the bound that achieved figures are put beside.
#pragma once
#include "cpu/workers.h"

namespace triforce::cpu {

// Read bandwidth in GB/s (1e9 bytes): a 512 MB buffer summed by all of workers.threads at
// workers.isa, the fastest decile of its 8 MB slices over three sweeps; a fraction of a second.
// Throws Error(kResources) without the memory.
double measure_read_bandwidth_gbs(const Workers& workers);

// Seconds of calls of measure_gemm_gflops(): beside a run of which it is a small part, and where
// the rate alone is asked for.
inline constexpr double kRunGemmSeconds = 0.04, kGemmSeconds = 0.25;

// Best rate in GFLOP/s of oneDNN's matmul at size^3 (2 size^3 operations) on packed weights, of the
// calls that `seconds` have room for, two at least: bf16 inputs for kBF16, f32 otherwise; 0 if
// oneDNN has no fast path for it at this level. Throws Error(kResources) without the memory.
double measure_gemm_gflops(const Workers& workers, DType dtype, double seconds = kGemmSeconds,
                           int size = 1024);

}  // namespace triforce::cpu
