// The bounds of this machine, measured once per run, and counters that put a figure beside them.
#pragma once
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/workers.h"

namespace triforce::bench {

// What all benchmarks run with: --threads and --cpu-isa of the program.
struct Setup {
  cpu::Isa isa = cpu::Isa::kScalar;
  int threads = 1;
};
const Setup& setup();

// Read bandwidth in GB/s with these threads; measured at the first call.
double read_bandwidth_gbs();
// oneDNN's rate in GFLOP/s at 1024^3 for f32 or bf16; measured at the first call.
double gemm_gflops(DType dtype);

// Says what the fastest tenth of the timed calls took at most, as the probes of the bounds do: the
// minimum is of a call whose data lay in a cache by chance, and the mean counts what others did.
class Stopwatch {
 public:
  template <class F>
  void time(const F& f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds_.push_back(took.count());
  }
  double seconds() const {
    std::vector<double> all = seconds_;
    const auto tenth = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 10);
    std::nth_element(all.begin(), tenth, all.end());
    return *tenth;
  }

 private:
  std::vector<double> seconds_;
};

// p10_us, and GB/s and its fraction of the read bandwidth for an op that must read `bytes`.
inline void report_bytes(benchmark::State& state, const Stopwatch& watch, double bytes) {
  const double seconds = watch.seconds(), gbs = bytes / seconds * 1e-9;
  state.counters["p10_us"] = seconds * 1e6;
  state.counters["GB/s"] = gbs;
  state.counters["of_bandwidth"] = gbs / read_bandwidth_gbs();
}

// p10_us, and GFLOP/s and its fraction of the GEMM rate. `bound` is that rate; 0: there is none.
inline void report_flops(benchmark::State& state, const Stopwatch& watch, double flops,
                         double bound) {
  const double seconds = watch.seconds(), gflops = flops / seconds * 1e-9;
  state.counters["p10_us"] = seconds * 1e6;
  state.counters["GFLOP/s"] = gflops;
  if (bound > 0) state.counters["of_gemm"] = gflops / bound;
}

}  // namespace triforce::bench
