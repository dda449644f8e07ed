// The bounds of this machine, measured once per run, and counters that put a figure beside them.
#pragma once
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

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

// Keeps the fastest of the timed calls: on a shared machine the minimum is what repeats.
class Stopwatch {
 public:
  template <class F>
  void time(const F& f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best_ = std::min(best_, took.count());
  }
  double best_seconds() const { return best_; }

 private:
  double best_ = 1e30;
};

// best_us, and GB/s and its fraction of the read bandwidth for an op that must read `bytes`.
inline void report_bytes(benchmark::State& state, const Stopwatch& watch, double bytes) {
  const double gbs = bytes / watch.best_seconds() * 1e-9;
  state.counters["best_us"] = watch.best_seconds() * 1e6;
  state.counters["GB/s"] = gbs;
  state.counters["of_bandwidth"] = gbs / read_bandwidth_gbs();
}

// best_us, and GFLOP/s and its fraction of the GEMM rate. `bound` is that rate; 0: there is none.
inline void report_flops(benchmark::State& state, const Stopwatch& watch, double flops,
                         double bound) {
  const double gflops = flops / watch.best_seconds() * 1e-9;
  state.counters["best_us"] = watch.best_seconds() * 1e6;
  state.counters["GFLOP/s"] = gflops;
  if (bound > 0) state.counters["of_gemm"] = gflops / bound;
}

}  // namespace triforce::bench
