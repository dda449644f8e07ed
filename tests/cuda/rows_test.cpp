// Conversion between strided rows, which only this backend uses by itself.
#include "kernels/kernels.h"

#include "cuda/cuda_test_support.h"

namespace triforce::kernels {
namespace {

using namespace cuda;

class RowsTest : public ::testing::TestWithParam<DType> {
 protected:
  CudaAllocator a_{0};
};

TEST_P(RowsTest, ConvertRoundsAndKeepsStrides) {
  const DType type = GetParam();
  constexpr std::int64_t kRows = 4, kWidth = 70, kStride = 75;
  const std::vector<float> x = normals(count(kRows, kStride), 7);
  const OnDevice<float> dx(a_, x);
  const OnDevice<std::uint16_t> half(a_, std::vector<std::uint16_t>(x.size(), 7));
  TensorView from = make_view(dx.data(), DType::kF32, {kRows, kWidth});
  TensorView to = make_view(half.data(), type, {kRows, kWidth});
  from.stride[0] = to.stride[0] = kStride;
  convert(from, to, nullptr);
  const std::vector<std::uint16_t> got = half.values();
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], i % kStride < kWidth ? to_half(x[i], type) : 7) << i;
  }
  const OnDevice<float> back(a_, std::vector<float>(x.size()));
  TensorView wide = make_view(back.data(), DType::kF32, {kRows, kWidth});
  wide.stride[0] = kStride;
  convert(to, wide, nullptr);
  EXPECT_EQ(back.values()[kStride], from_half(got[kStride], type));
}

INSTANTIATE_TEST_SUITE_P(Types, RowsTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce::kernels
