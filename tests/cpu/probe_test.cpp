#include "cpu/probe.h"

#include "cpu/cpu_test_support.h"
#include "gemm_rate.h"

namespace triforce::cpu {
namespace {

TEST(Probe, RatesArePositiveAndPlausible) {
  const Context context{.isa = best_isa(), .threads = 2, .scratch = {}};
  const double bandwidth = measure_read_bandwidth_gbs(context);
  EXPECT_GT(bandwidth, 0.05);
  EXPECT_LT(bandwidth, 5000.0);
  const double f32 = measure_gemm_gflops(context, DType::kF32, 256);
  EXPECT_GT(f32, 0.1);
  EXPECT_LT(f32, 1e5);
}

TEST(Probe, NoRateWhereThereIsNoFastPath) {
  const Context context{.isa = Isa::kScalar, .threads = 1, .scratch = {}};
  EXPECT_EQ(measure_gemm_gflops(context, DType::kBF16, 128), 0.0);
}

}  // namespace
}  // namespace triforce::cpu
