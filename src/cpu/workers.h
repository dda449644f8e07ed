// The free functions behind CpuBackend share this: instruction level, threads, scratch.
#pragma once
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cpu/shares.h"
#include "triforce/backend.h"

namespace triforce::cpu {

// Instruction levels with kernels of their own; those of one architecture in rising order. Chosen
// at run time, forced with --cpu-isa; results agree between levels within rounding, and are
// bit-exact within one.
enum class Isa : std::uint8_t {
  kScalar,      // what the compiler makes for every processor of the architecture
  kNeon,        // 64-bit Arm
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // AVX-512 F, BW, VL, DQ
  kAvx512Bf16,  // the same and vdpbf16ps
  kAmx,         // the same and AMX tiles of bf16
};
constexpr auto names_of(Isa /*any*/) {
  return std::array{"scalar", "neon", "avx2", "avx512", "avx512-bf16", "amx"};
}
std::span<const Isa> usable_isas();  // of this processor, rising; the first is kScalar
Isa best_isa();                      // of them, the fastest for passes of several rows in bf16
// Throws Error(kUsage) for an unknown name and Error(kDevice, "UnsupportedIsa") for a level this
// processor lacks.
Isa parse_isa(std::string_view name);

// Floats that linear layers and attention take at a time, and lanes of sums whose order matters, at
// every level.
inline constexpr int kLanes = 16;

struct Workers {
  Isa isa = Isa::kScalar;
  int threads = 1;
  std::span<std::byte>
      scratch;  // 64-byte aligned, shared by all ops, contents never survive a call
};

// Returns the workers with at most as many threads. It never affects results.
inline Workers with_threads(Workers workers, std::int64_t threads) {
  workers.threads =
      static_cast<int>(std::clamp<std::int64_t>(threads, 1, std::max(1, workers.threads)));
  return workers;
}

// Allocation-free OpenMP loop over [0, count): body(index, thread), shared out as Shares says;
// thread is in [0, threads). Which thread runs an index never changes results.
template <class Body>
void parallel_for(const Workers& workers, std::int64_t count, const Body& body) {
  const int threads = static_cast<int>(std::min<std::int64_t>(workers.threads, count));
  if (threads <= 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  Shares shares(count, threads);
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num();
    for (IndexRange run = shares.take(thread); run.begin < run.end; run = shares.take(thread)) {
      for (std::int64_t i = run.begin; i < run.end; ++i) body(i, thread);
    }
  }
}

}  // namespace triforce::cpu
