// Operations on rows against the oracle or exactly.
#include "kernels/rows.h"

#include <cmath>
#include <numeric>

#include "cuda/cuda_test_support.h"

namespace triforce::kernels {
namespace {

using namespace cuda;

class RowsTest : public ::testing::TestWithParam<DType> {
 protected:
  CudaAllocator a_{0};
};

TEST_P(RowsTest, EmbedCopiesRows) {
  const DType type = GetParam();
  constexpr std::int64_t kVocab = 11, kWidth = 300;
  const std::vector<float> table = normals(count(kVocab, kWidth), 1);
  const OnDevice<std::uint16_t> dt(a_, to_halves(table, type));
  const std::vector<std::int32_t> tokens = {3, 0, 10, 3};
  const OnDevice<std::int32_t> ids(a_, tokens);
  const OnDevice<float> out(a_, std::vector<float>(count(4, kWidth)));
  embed(make_view(ids.data(), DType::kI32, {4}), make_view(dt.data(), type, {kVocab, kWidth}),
        make_view(out.data(), DType::kF32, {4, kWidth}), nullptr);
  const std::vector<float> got = out.values();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t row = i / kWidth;
    const float expected = table[count(tokens[row], kWidth) + i % kWidth];
    ASSERT_EQ(got[i], from_half(to_half(expected, type), type));
  }
}

// Errors: the sum of D squares and its root, two products, and the rounding of the output.
TEST_P(RowsTest, RmsNormMatchesDouble) {
  const DType type = GetParam();
  for (const std::int64_t width : {1, 77, 256, 1000}) {
    constexpr std::int64_t kRows = 3;
    const std::vector<float> x = normals(count(kRows, width), 2),
                             w = normals(static_cast<std::size_t>(width), 3);
    const OnDevice<float> dx(a_, x), dw(a_, w);
    const OnDevice<std::uint16_t> half(a_, std::vector<std::uint16_t>(x.size()));
    const OnDevice<float> full(a_, std::vector<float>(x.size()));
    const TensorView vx = make_view(dx.data(), DType::kF32, {kRows, width});
    const TensorView vw = make_view(dw.data(), DType::kF32, {width});
    rms_norm(vx, vw, 1e-5F, make_view(half.data(), type, {kRows, width}), nullptr);
    rms_norm(vx, vw, 1e-5F, make_view(full.data(), DType::kF32, {kRows, width}), nullptr);
    const std::vector<float> h = from_halves(half.values(), type), f = full.values();
    const double sum_error = static_cast<double>(width + 8) * 0x1p-24;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto row =
          x.begin() + static_cast<std::ptrdiff_t>(i / static_cast<std::size_t>(width)) * width;
      const double squares = std::inner_product(row, row + width, row, 0.0, std::plus<>(),
                                                [](double p, double q) { return p * q; });
      const double expected = double{x[i]} /
                              std::sqrt(squares / static_cast<double>(width) + 1e-5) *
                              double{w[i % static_cast<std::size_t>(width)]};
      ASSERT_NEAR(f[i], expected, std::abs(expected) * sum_error) << width << " at " << i;
      // Below its normal range f16 rounds to multiples of 2^-24.
      ASSERT_NEAR(h[i], expected, std::abs(expected) * (sum_error + unit_roundoff(type)) + 0x1p-25);
    }
  }
}

TEST_P(RowsTest, RmsNormOfARowDoesNotDependOnOthers) {
  constexpr std::int64_t kRows = 32, kWidth = 515;
  const OnDevice<float> x(a_, normals(count(kRows, kWidth), 4)), w(a_, normals(kWidth, 5));
  const OnDevice<float> all(a_, std::vector<float>(count(kRows, kWidth)));
  const OnDevice<float> one(a_, std::vector<float>(kWidth));
  const TensorView vx = make_view(x.data(), DType::kF32, {kRows, kWidth});
  const TensorView vw = make_view(w.data(), DType::kF32, {kWidth});
  rms_norm(vx, vw, 1e-5F, make_view(all.data(), DType::kF32, {kRows, kWidth}), nullptr);
  const std::vector<float> together = all.values();
  for (const std::int64_t r : {0, 13, 31}) {
    rms_norm(vx.rows(r, 1), vw, 1e-5F, make_view(one.data(), DType::kF32, {1, kWidth}), nullptr);
    const std::vector<float> alone = one.values();
    ASSERT_TRUE(std::equal(alone.begin(), alone.end(),
                           together.begin() + static_cast<std::ptrdiff_t>(r * kWidth)));
  }
}

// expf is good to 2 units in the last place; then a sum, a quotient, a product, the rounding.
TEST_P(RowsTest, SwigluMatchesDouble) {
  const DType type = GetParam();
  constexpr std::int64_t kRows = 5, kWidth = 261;
  std::vector<float> in = normals(count(kRows, 2 * kWidth), 6);
  in[0] = 90;
  in[1] = -90;  // exp overflows: the gate is 0
  const OnDevice<std::uint16_t> d(a_, to_halves(in, type));
  const OnDevice<std::uint16_t> out(a_, std::vector<std::uint16_t>(count(kRows, kWidth)));
  swiglu(make_view(d.data(), type, {kRows, 2 * kWidth}),
         make_view(out.data(), type, {kRows, kWidth}), nullptr);
  const std::vector<float> got = from_halves(out.values(), type);
  const std::vector<float> x = from_halves(to_halves(in, type), type);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t at = i / kWidth * 2 * kWidth + i % kWidth;
    const double gate = double{x[at]}, up = double{x[at + kWidth]};
    const double expected = gate / (1 + std::exp(-gate)) * up;
    ASSERT_NEAR(got[i], expected,
                std::abs(expected) * (8 * 0x1p-24 + unit_roundoff(type)) + 0x1p-25)
        << i;
  }
}

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
