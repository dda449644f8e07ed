#include "cpu/probs.h"

#include "cpu/cpu_test_support.h"

namespace triforce::cpu {
namespace {

class ProbsTest : public testing::TestWithParam<Isa> {
 protected:
  ProbsTest() : env_(GetParam(), 2, probs_scratch_bytes(3001, 3)) {}

  TestContext env_;
};

TEST_P(ProbsTest, BitsDependOnNeitherRowsThreadsNorLevel) {
  const std::int64_t rows = 32, vocab = 3001;
  std::vector<float> logits = normal_values(rows * vocab, 7, 4.0F);
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{0.8F, 1.0F, 40}, SamplingParams{1.0F, 1.0F, 0}}) {
    TestContext scalar(Isa::kScalar, 1, probs_scratch_bytes(vocab, 1));
    std::vector<float> want(logits.size());
    to_probs(scalar.get(), make_view(logits.data(), DType::kF32, {rows, vocab}), params,
             make_view(want.data(), DType::kF32, {rows, vocab}));
    for (const int threads : {1, 2, 3}) {
      env_.get().threads = threads;
      for (const std::int64_t count : {std::int64_t{1}, std::int64_t{7}, rows}) {
        std::vector<float> got(static_cast<std::size_t>(count * vocab));
        to_probs(env_.get(), make_view(logits.data(), DType::kF32, {count, vocab}), params,
                 make_view(got.data(), DType::kF32, {count, vocab}));
        ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ProbsTest, testing::ValuesIn(levels()),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace triforce::cpu
