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

TEST_P(RowsTest, ConvertCopiesAndGoesFromOneHalfToTheOther) {
  const DType type = GetParam(), other = type == DType::kF16 ? DType::kBF16 : DType::kF16;
  constexpr std::int64_t kRows = 2, kWidth = 33;
  const std::vector<std::uint16_t> x = to_halves(normals(count(kRows, kWidth), 8), type);
  const OnDevice<std::uint16_t> from(a_, x), to(a_, std::vector<std::uint16_t>(x.size()));
  const auto rows = [&](const OnDevice<std::uint16_t>& of, DType as) {
    return make_view(of.data(), as, {kRows, kWidth});
  };
  convert(rows(from, type), rows(to, type), nullptr);
  EXPECT_EQ(to.values(), x);
  convert(rows(from, type), rows(to, other), nullptr);
  const std::vector<std::uint16_t> got = to.values();
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], to_half(from_half(x[i], type), other)) << i;
  }
  const std::vector<std::int32_t> ids = {5, -3, 1 << 30, 0};
  const OnDevice<std::int32_t> some(a_, ids), same(a_, std::vector<std::int32_t>(ids.size()));
  convert(make_view(some.data(), DType::kI32, {2, 2}), make_view(same.data(), DType::kI32, {2, 2}),
          nullptr);
  EXPECT_EQ(same.values(), ids);
}

// The sum of a word and zeros is that word; one value of it is written.
TEST(ReadAll, ReadsTheLastWord) {
  constexpr std::uint32_t kWritten = 0x9e3779b9U;
  for (const std::size_t words : {4, 4 * 512, 4 * 512 * 8 * 3 + 8}) {
    for (const std::uint32_t last : {kWritten, kWritten + 1}) {
      CudaAllocator a(0);
      std::vector<std::uint32_t> values(words);
      values.back() = last;
      const OnDevice<std::uint32_t> data(a, values), sink(a, std::vector<std::uint32_t>(1));
      read_all(data.data(), static_cast<std::int64_t>(words * sizeof(std::uint32_t)), 2,
               sink.data(), nullptr);
      EXPECT_EQ(sink.values()[0], last == kWritten ? kWritten : 0) << words;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RowsTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce::kernels
