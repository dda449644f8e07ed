#include "cpu/laws.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cpu/cpu_test_support.h"

namespace triforce::cpu {
namespace {

// The definition, by sorting, in double.
std::vector<double> sorted_law(const float* logits, std::int64_t vocab, const LawParams& params) {
  std::vector<std::size_t> ids(static_cast<std::size_t>(vocab));
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  std::size_t kept = ids.size();
  if (params.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(params.top_k));
  if (params.temperature == 0) kept = 1;
  std::vector<double> weight(kept);
  for (std::size_t i = 0; i < kept; ++i) {
    weight[i] =
        params.temperature == 0
            ? 1.0
            : std::exp((static_cast<double>(logits[ids[i]]) - static_cast<double>(logits[ids[0]])) /
                       static_cast<double>(params.temperature));
  }
  const double all = std::accumulate(weight.begin(), weight.end(), 0.0);
  double sum = 0;
  std::size_t last = 0;
  while (last < kept && (params.top_p >= 1 || sum < static_cast<double>(params.top_p) * all)) {
    sum += weight[last++];
  }
  std::vector<double> law(static_cast<std::size_t>(vocab));
  for (std::size_t i = 0; i < last; ++i) law[ids[i]] = weight[i] / sum;
  return law;
}

class LawsTest : public testing::TestWithParam<Isa> {
 protected:
  static constexpr std::int64_t kMaxVocab = 131072;
  LawsTest() : env_(GetParam(), 2, laws_scratch_bytes(kMaxVocab, 3)) {}

  std::vector<float> law(std::vector<float>& logits, const LawParams& params,
                         std::int64_t rows = 1) {
    const auto vocab = static_cast<std::int64_t>(logits.size()) / rows;
    Guarded out(rows, vocab, 7.0F);
    to_laws(env_.get(), make_view(logits.data(), DType::kF32, {rows, vocab}), params, out.view());
    EXPECT_TRUE(out.intact());
    std::vector<float> all;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < vocab; ++i) all.push_back(out.at(r, i));
    }
    return all;
  }

  // The same support and the same probabilities to the rounding of exp, a sum and two products.
  void expect_law(std::vector<float>& logits, const LawParams& params) {
    const std::vector<float> got = law(logits, params);
    const auto vocab = static_cast<std::int64_t>(logits.size());
    const std::vector<double> want = sorted_law(logits.data(), vocab, params);
    const float max = *std::max_element(logits.begin(), logits.end());
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i] > 0, want[i] > 0)
          << "id " << i << " of " << vocab << ", T " << params.temperature << ", top_p "
          << params.top_p << ", top_k " << params.top_k;
      // (l - max) / T carries three roundings, which exp multiplies by its argument.
      const double argument = std::abs(static_cast<double>(logits[i] - max)) /
                              std::max(0.01, static_cast<double>(params.temperature));
      const double relative = (3.0 * argument + 10.0) * 0x1.0p-24;
      // The sum's own terms are as wrong, weighted by their share: at most the same again.
      ASSERT_NEAR(static_cast<double>(got[i]), want[i], 2.0 * relative * want[i] + 1e-9) << i;
    }
  }

  TestContext env_;
};

TEST_P(LawsTest, AgreesWithSorting) {
  for (const std::int64_t vocab : {1, 2, 15, 63, 64, 65, 1000, 4096, 32000}) {
    std::vector<float> logits = normal_values(vocab, static_cast<std::uint32_t>(vocab), 3.0F);
    for (const float temperature : {0.0F, 0.3F, 0.6F, 1.0F}) {
      for (const float top_p : {0.05F, 0.9F, 0.999F, 1.0F}) {
        for (const int top_k : {0, 1, 3, 50, 1 << 20}) {
          expect_law(logits, {.temperature = temperature, .top_p = top_p, .top_k = top_k});
        }
      }
    }
  }
}

TEST_P(LawsTest, FlatLogitsOfAWideVocabulary) {
  std::vector<float> logits = normal_values(kMaxVocab, 5, 0.01F);
  expect_law(logits, {.temperature = 1.0F, .top_p = 0.5F, .top_k = 0});
  expect_law(logits, {.temperature = 1.0F, .top_p = 1.0F, .top_k = 5000});
}

TEST_P(LawsTest, TiesGoToTheLowestIds) {
  std::vector<float> equal(1000, 2.0F);
  // Equal weights: top_p 0.5 keeps exactly the first half, top_k the first k.
  const std::vector<float> half = law(equal, {.temperature = 0.7F, .top_p = 0.5F, .top_k = 0});
  const std::vector<float> top = law(equal, {.temperature = 0.7F, .top_p = 1.0F, .top_k = 4});
  const std::vector<float> one = law(equal, {.temperature = 0.0F, .top_p = 0.9F, .top_k = 0});
  for (std::size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(half[i], i < 500 ? 1.0F / 500.0F : 0.0F) << i;
    EXPECT_EQ(top[i], i < 4 ? 0.25F : 0.0F) << i;
    EXPECT_EQ(one[i], i == 0 ? 1.0F : 0.0F) << i;
  }
  // Of several equal ids at the cut, the lower ones stay; -0 and 0 are equal.
  std::vector<float> few = {0.0F, 5.0F, -0.0F, 5.0F, 0.0F};
  const std::vector<float> cut = law(few, {.temperature = 1.0F, .top_p = 1.0F, .top_k = 3});
  EXPECT_GT(cut[0], 0.0F);
  EXPECT_EQ(cut[2], 0.0F);
  EXPECT_EQ(cut[4], 0.0F);
}

TEST_P(LawsTest, MinusInfinityMaskedOrNotFiniteRowsBecomeNaN) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t where : {0U, 77U, 99U}) {
      std::vector<float> logits = normal_values(200, 6);
      logits[where] = bad;  // in the first of two rows
      const std::vector<float> got = law(logits, LawParams{}, 2);
      for (std::size_t i = 0; i < 100; ++i) ASSERT_TRUE(std::isnan(got[i]));
      ASSERT_NEAR(std::accumulate(got.begin() + 100, got.end(), 0.0), 1.0, 1e-5);
    }
  }
}

TEST_P(LawsTest, HugeAndTinyLogitsStayFinite) {
  std::vector<float> logits = {3e38F, -3e38F, 0.0F, 2.9e38F};
  const std::vector<float> got = law(logits, {.temperature = 0.01F, .top_p = 0.9F, .top_k = 0});
  EXPECT_EQ(got, (std::vector<float>{1.0F, 0.0F, 0.0F, 0.0F}));
}

TEST_P(LawsTest, BitsDependOnNeitherRowsThreadsNorLevel) {
  const std::int64_t rows = 32, vocab = 3001;
  std::vector<float> logits = normal_values(rows * vocab, 7, 4.0F);
  for (const LawParams& params :
       {LawParams{}, LawParams{0.8F, 1.0F, 40}, LawParams{1.0F, 1.0F, 0}}) {
    TestContext scalar(Isa::kScalar, 1, laws_scratch_bytes(vocab, 1));
    std::vector<float> want(logits.size());
    to_laws(scalar.get(), make_view(logits.data(), DType::kF32, {rows, vocab}), params,
            make_view(want.data(), DType::kF32, {rows, vocab}));
    for (const int threads : {1, 2, 3}) {
      env_.get().threads = threads;
      for (const std::int64_t count : {std::int64_t{1}, std::int64_t{7}, rows}) {
        std::vector<float> got(static_cast<std::size_t>(count * vocab));
        to_laws(env_.get(), make_view(logits.data(), DType::kF32, {count, vocab}), params,
                make_view(got.data(), DType::kF32, {count, vocab}));
        ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, LawsTest, testing::ValuesIn(levels()),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace triforce::cpu
