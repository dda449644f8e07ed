// The CPU backend: own kernels for decoding, oneDNN for prefill, OpenMP for threads.
#pragma once
#include <memory>
#include <optional>

#include "cpu/workers.h"
#include "triforce/host_attention.h"

namespace triforce {

struct CpuOptions {
  int threads = 0;  // 0: one per processor this process may use, or as many as OpenMP starts
  std::optional<cpu::Isa> isa;  // unset: the best of this processor
};

// Throws Error(kUsage) for a negative thread count, Error(kDevice, "UnsupportedIsa") for a level
// this processor lacks, and as expect_team() (cpu/team.h). The level also limits oneDNN, whatever
// its environment says, if this is the first backend made.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);
// Makes attention of the same level and threads for rows that a device keeps. Throws the same;
// oneDNN has no part in it.
std::unique_ptr<HostAttention> make_host_attention(const CpuOptions& options);

}  // namespace triforce
