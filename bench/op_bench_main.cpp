// triforce-op-bench: every CPU op beside its bound. Options of Google Benchmark, and before them
// --threads=N and --cpu-isa=LEVEL.
#include <cstdlib>
#include <map>
#include <string_view>

#include "bandwidth.h"
#include "cpu/gemm.h"
#include "cpu/probe.h"
#include "run_benchmarks.h"

namespace triforce::bench {
namespace {

Setup& mutable_setup() {
  static Setup s{cpu::best_isa(), omp_get_num_procs()};
  return s;
}

cpu::Workers workers() { return {.isa = setup().isa, .threads = setup().threads, .scratch = {}}; }

bool take(std::string_view arg) {
  if (arg.starts_with("--threads=")) {
    mutable_setup().threads = std::atoi(arg.data() + 10);
    if (mutable_setup().threads < 1) throw_usage("--threads: expected 1 or more");
    return true;
  }
  if (!arg.starts_with("--cpu-isa=")) return false;
  mutable_setup().isa = cpu::parse_isa(arg.substr(10));
  cpu::limit_gemm_isa(mutable_setup().isa);
  return true;
}

void describe() {
  benchmark::AddCustomContext("cpu_isa", to_string(setup().isa));
  benchmark::AddCustomContext("threads", std::to_string(setup().threads));
  benchmark::AddCustomContext("read_bandwidth_GB/s", fmt::format("{:.1f}", read_bandwidth_gbs()));
  benchmark::AddCustomContext("gemm_f32_GFLOP/s", fmt::format("{:.0f}", gemm_gflops(DType::kF32)));
  benchmark::AddCustomContext("gemm_bf16_GFLOP/s",
                              fmt::format("{:.0f}", gemm_gflops(DType::kBF16)));
}

}  // namespace

const Setup& setup() { return mutable_setup(); }

double read_bandwidth_gbs() {
  static const double kMeasured = cpu::measure_read_bandwidth_gbs(workers());
  return kMeasured;
}

double gemm_gflops(DType dtype) {
  static std::map<DType, double> measured;
  const auto found = measured.find(dtype);
  if (found != measured.end()) return found->second;
  return measured[dtype] = cpu::measure_gemm_gflops(workers(), dtype);
}

}  // namespace triforce::bench

int main(int argc, char** argv) {
  using namespace triforce::bench;
  return run_benchmarks("triforce-op-bench", argc, argv, take, describe);
}
