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
    const auto request = [&](std::vector<float>& out, std::int64_t first, std::int64_t count) {
      return ProbsRequest{make_view(logits.data(), DType::kF32, {rows, vocab}).rows(first, count),
                          make_view(out.data() + first * vocab, DType::kF32, {count, vocab})};
    };
    const ProbsRequest all = request(want, 0, rows);
    to_probs(scalar.get(), std::span(&all, 1), params);
    for (const int threads : {1, 2, 3}) {
      env_.get().threads = threads;
      for (const std::int64_t count : {std::int64_t{1}, std::int64_t{7}, rows}) {
        std::vector<float> got(static_cast<std::size_t>(count * vocab));
        std::vector<ProbsRequest> requests{request(got, count / 3, count - count / 3)};
        if (count > 1) requests.push_back(request(got, 0, count / 3));
        to_probs(env_.get(), requests, params);
        ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ProbsTest, testing::ValuesIn(levels()),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace triforce::cpu
