#include "cpu/probe.h"

#include "cpu/cpu_backend.h"
#include "cpu/cpu_test_support.h"

namespace triforce::cpu {
namespace {

TEST(Probe, RatesArePositiveAndPlausible) {
  const Workers workers{.isa = best_isa(), .threads = 2, .scratch = {}};
  const double bandwidth = measure_read_bandwidth_gbs(workers);
  EXPECT_GT(bandwidth, 0.05);
  EXPECT_LT(bandwidth, 5000.0);
  const double f32 = measure_gemm_gflops(workers, DType::kF32, 0.01, 256);
  EXPECT_GT(f32, 0.1);
  EXPECT_LT(f32, 1e5);
}

TEST(Probe, NoRateWhereThereIsNoFastPath) {
  const Workers workers{.isa = Isa::kScalar, .threads = 1, .scratch = {}};
  EXPECT_EQ(measure_gemm_gflops(workers, DType::kBF16, 0.01, 128), 0.0);
}

TEST(Probe, BackendsMeasureWhatTheirPrefillMultipliesWith) {
  // The second one limits what oneDNN may use in this process.
  const auto best = make_cpu_backend({.threads = 1, .isa = {}});
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::optional<double> rate = best->measure_gemm_gflops(dtype);
    ASSERT_EQ(rate.has_value(), best_isa() != Isa::kScalar) << to_string(dtype);
    EXPECT_GT(rate.value_or(1), 0.1) << to_string(dtype);
  }
  const auto scalar = make_cpu_backend({.threads = 1, .isa = Isa::kScalar});
  EXPECT_FALSE(scalar->measure_gemm_gflops(DType::kF32));
}

}  // namespace
}  // namespace triforce::cpu
