// Linked into every test of this folder: without a device they are skipped, and say why.
#include <gtest/gtest.h>

#include "cuda/runtime.h"

namespace triforce::cuda {
namespace {

class NeedsDevice final : public ::testing::Environment {
 public:
  void SetUp() override {
    std::string reason;
    // ctest knows a skipped test by this line (cmake/Cuda.cmake).
    if (count_devices(&reason) == 0) GTEST_SKIP() << "skipped without a CUDA device: " << reason;
  }
};

const auto* const kNeedsDevice = ::testing::AddGlobalTestEnvironment(new NeedsDevice);

}  // namespace
}  // namespace triforce::cuda
