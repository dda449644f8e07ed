// The CUDA backend as a whole: every operation against the oracle, rows against their company,
// recorded passes, memory.
#include "cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include "app/selftest.h"

namespace triforce {
namespace {

class CudaBackendTest : public ::testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Backend> backend_ = make_cuda_backend({.device = 0, .dtype = GetParam()});
};

TEST_P(CudaBackendTest, PassesTheSelfTestOfOperations) {
  SelftestOptions options;
  options.losslessness = false;
  const SelftestReport report = run_selftest(*backend_, options, [](const SelftestCheck& check) {
    EXPECT_TRUE(check.passed) << selftest_line(check);
  });
  EXPECT_GT(report.checks.size(), 20U);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaBackendTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce
