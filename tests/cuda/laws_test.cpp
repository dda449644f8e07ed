// Laws on the device against the oracle: the same ids, and probabilities to rounding.
#include "kernels/laws.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/cuda_test_support.h"
#include "reference/reference_backend.h"

namespace triforce::kernels {
namespace {

using namespace cuda;

class LawsTest : public ::testing::Test {
 protected:
  std::vector<float> laws(const std::vector<float>& logits, std::int64_t rows,
                          const LawParams& params) {
    const OnDevice<float> in(a_, logits), out(a_, std::vector<float>(logits.size(), 7.0F));
    const std::int64_t vocab = static_cast<std::int64_t>(logits.size()) / rows;
    to_laws(make_view(in.data(), DType::kF32, {rows, vocab}), params,
            make_view(out.data(), DType::kF32, {rows, vocab}), nullptr);
    return out.values();
  }

  void expect_oracle(std::vector<float> logits, const LawParams& params) {
    const auto vocab = static_cast<std::int64_t>(logits.size());
    SCOPED_TRACE(fmt::format("{} ids, T {}, top_p {}, top_k {}", vocab, params.temperature,
                             params.top_p, params.top_k));
    const std::vector<float> got = laws(logits, 1, params);
    std::vector<float> expected(logits.size());
    make_reference_backend()->to_laws(make_view(logits.data(), DType::kF32, {1, vocab}), params,
                                      make_view(expected.data(), DType::kF32, {1, vocab}));
    const float most = *std::max_element(logits.begin(), logits.end());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i] > 0, expected[i] > 0) << i;
      // (l - max) / T carries three roundings, which exp multiplies by its argument; CUDA's expf
      // is good to 2 ulp. The sum's terms are as wrong, weighted by their share.
      const double argument = params.temperature > 0
                                  ? double{std::abs(logits[i] - most)} / double{params.temperature}
                                  : 0.0;
      const double bound =
          expected[i] > 0 ? 2 * (3 * argument + 12) * 0x1p-24 * double{expected[i]} + 1e-9 : 0.0;
      ASSERT_NEAR(got[i], expected[i], bound) << i;
    }
  }

  CudaAllocator a_{0};
};

TEST_F(LawsTest, MatchTheOracle) {
  for (const std::int64_t vocab : {1, 2, 63, 1000, 1025, 4097}) {
    std::vector<float> logits =
        normals(static_cast<std::size_t>(vocab), static_cast<unsigned>(vocab));
    for (float& x : logits) x *= 3;
    for (const float temperature : {0.0F, 0.3F, 1.0F}) {
      for (const float top_p : {0.05F, 0.9F, 1.0F}) {
        for (const int top_k : {0, 1, 50, 1 << 20}) {
          expect_oracle(logits, {temperature, top_p, top_k});
        }
      }
    }
  }
  std::vector<float> wide = normals(32003, 4);
  for (float& x : wide) x *= 4;
  expect_oracle(wide, LawParams{});
}

TEST_F(LawsTest, TiesGoToTheLowestIds) {
  const std::vector<float> equal(1000, 2.0F);
  // Equal weights: top_p 0.5 keeps exactly the first half, top_k the first k.
  const std::vector<float> half = laws(equal, 1, {0.7F, 0.5F, 0}), top = laws(equal, 1, {1, 1, 4});
  const std::vector<float> one = laws(equal, 1, {0, 0.9F, 0});
  for (std::size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(half[i], i < 500 ? 1.0F / 500.0F : 0.0F) << i;
    EXPECT_EQ(top[i], i < 4 ? 0.25F : 0.0F) << i;
    EXPECT_EQ(one[i], i == 0 ? 1.0F : 0.0F) << i;
  }
  // -0 and 0 are equal.
  const std::vector<float> cut = laws({0.0F, 5.0F, -0.0F, 5.0F, 0.0F}, 1, {1, 1, 3});
  EXPECT_GT(cut[0], 0.0F);
  EXPECT_EQ(cut[2], 0.0F);
  EXPECT_EQ(cut[4], 0.0F);
}

// Where ids do not spread over the buckets that the cuts begin with.
TEST_F(LawsTest, OddlySpreadLogitsMatchTheOracle) {
  const LawParams nucleus{1, 0.9F, 0}, both{0.8F, 0.7F, 60}, all_but_one{1, 1, 2999};
  std::vector<float> few(3000), outlier = normals(3000, 8), huge = normals(3000, 9);
  for (std::size_t i = 0; i < few.size(); ++i) few[i] = static_cast<float>(i * 7919 % 5);
  outlier[5] = -1e30F;
  for (std::size_t i = 0; i < huge.size(); ++i) huge[i] *= i % 3 == 0 ? 1e38F : 1;
  std::vector<float> close(3000, 1.0F), alone(3000, -50.0F);
  for (std::size_t i = 0; i < close.size(); ++i) {
    close[i] += static_cast<float>(i * 7919 % 7) * 0x1p-23F;
  }
  alone[2999] = 3;
  for (const auto& logits : {few, outlier, huge, close, alone}) {
    for (const LawParams& params : {nucleus, both, all_but_one}) expect_oracle(logits, params);
  }
}

TEST_F(LawsTest, ARowThatIsNotFiniteBecomesNaN) {
  for (const float bad :
       {NAN, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t where : {0U, 77U, 99U}) {
      std::vector<float> logits = normals(200, 6);
      logits[where] = bad;  // in the first of two rows
      const std::vector<float> got = laws(logits, 2, LawParams{});
      for (std::size_t i = 0; i < 100; ++i) ASSERT_TRUE(std::isnan(got[i]));
      double sum = 0;
      for (std::size_t i = 100; i < 200; ++i) sum += double{got[i]};
      EXPECT_NEAR(sum, 1.0, 1e-5);
    }
  }
}

TEST_F(LawsTest, HugeLogitsStayFinite) {
  EXPECT_EQ(laws({3e38F, -3e38F, 0.0F, 2.9e38F}, 1, {0.01F, 0.9F, 0}),
            (std::vector<float>{1, 0, 0, 0}));
}

TEST_F(LawsTest, BitsDoNotDependOnOtherRows) {
  const std::size_t rows = 32, vocab = 1003;
  const std::vector<float> logits = normals(rows * vocab, 7);
  for (const LawParams& params : {LawParams{}, LawParams{0.8F, 1, 40}, LawParams{1, 1, 0}}) {
    const std::vector<float> all = laws(logits, rows, params);
    for (const std::size_t r : {0U, 6U, 31U}) {
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(r * vocab);
      const std::vector<float> one = laws({begin, begin + vocab}, 1, params);
      EXPECT_TRUE(
          std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(r * vocab)));
    }
  }
}

}  // namespace
}  // namespace triforce::kernels
