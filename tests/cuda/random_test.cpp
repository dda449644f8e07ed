// Random weights on the device are the host's, bit for bit.
#include "kernels/random.h"

#include "cuda/cuda_test_support.h"
#include "reference/reference_backend.h"

namespace triforce::kernels {
namespace {

using namespace cuda;

TEST(RandomValues, AreTheOracles) {
  CudaAllocator a(0);
  const DrawKey key{.seed = 0x123456789ABCDEFULL, .prompt = 0, .level = 0, .round = 17};
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{3}, std::int64_t{1} << 33}) {
    for (const std::int64_t n : {1, 2, 5, 1023, 5000}) {
      const OnDevice<float> out(a, std::vector<float>(static_cast<std::size_t>(n + 1), 7.0F));
      random_values(make_view(out.data(), DType::kF32, {n}), key, first, 0.02, nullptr);
      std::vector<float> expected(static_cast<std::size_t>(n + 1), 7.0F);
      make_reference_backend()->random_values(make_view(expected.data(), DType::kF32, {n}), key,
                                              first, 0.02);
      EXPECT_EQ(out.values(), expected) << first << " + " << n;
    }
  }
}

}  // namespace
}  // namespace triforce::kernels
