// What the CUDA backend says of itself; tests/backend holds what it shares with the others.
#include "cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include <tuple>

#include "cuda/cublas_lt.h"

namespace triforce {
namespace {

class CudaBackendTest : public ::testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  bool cublas_lt() const { return std::get<1>(GetParam()); }
  std::unique_ptr<Backend> backend_ =
      make_cuda_backend({.device = 0, .dtype = std::get<0>(GetParam()), .cublas_lt = cublas_lt()});
};

TEST_P(CudaBackendTest, SaysWhatComputesPrefillGemms) {
  const bool library = cublas_lt() && cuda::CublasLt::open() != nullptr;
  const char* const expected =
      library ? "prefill GEMMs by cuBLASLt 1" : "prefill GEMMs by own kernels (no cuBLASLt)";
  EXPECT_NE(backend_->description().find(expected), std::string::npos) << backend_->description();
  // A row-major copy of weights is for the library alone.
  Backend::ScratchShape shape;
  shape.rows = backend_->prefill_rows();
  shape.max_width = 4096;
  EXPECT_EQ(backend_->scratch_bytes(shape) > 0, library);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaBackendTest,
                         ::testing::Values(std::tuple(DType::kF16, true),
                                           std::tuple(DType::kBF16, true),
                                           std::tuple(DType::kBF16, false)));

}  // namespace
}  // namespace triforce
