// Drawing and judging on the device against the host's one rule.
#include "kernels/sample.h"

#include <cmath>

#include "cuda/cuda_test_support.h"
#include "triforce/sampling.h"

namespace triforce::kernels {
namespace {

using namespace cuda;

// Rows of laws: some ids impossible, one certain row, one as a broken pass leaves it.
std::vector<float> laws(std::int64_t rows, std::int64_t vocab, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> out;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<float> law(static_cast<std::size_t>(vocab));
    float total = 0;
    for (float& x : law)
      total += x = random() % 3 == 0 ? 0.0F : static_cast<float>(random() % 1000 + 1);
    if (total == 0) total = law[0] = 1;
    for (float& x : law) x /= total;
    out.insert(out.end(), law.begin(), law.end());
  }
  return out;
}

class SampleTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  Verdict device_sample(const std::vector<float>& law, const DrawKey& key, std::int64_t position,
                        Acceptance acceptance) {
    const OnDevice<float> d(a_, law);
    sample(make_view(d.data(), DType::kF32, {static_cast<std::int64_t>(law.size())}), key, position,
           acceptance, verdict(), nullptr);
    TF_CUDA(cudaDeviceSynchronize());
    return *verdict();
  }
  Verdict* verdict() { return static_cast<Verdict*>(pinned_.data()); }
  CudaAllocator a_{0};
  Buffer pinned_{a_, sizeof(Verdict), Place::kPinned, MemTag::kWorkspace};
};

TEST_P(SampleTest, TokensAreTheHosts) {
  for (std::uint32_t i = 0; i < 40; ++i) {
    const std::vector<float> law = laws(1, GetParam(), i);
    const DrawKey key{.seed = 11 + i, .prompt = i % 3, .level = 1, .round = i};
    for (const Acceptance acceptance : {Acceptance::kSpeculative, Acceptance::kCoupled}) {
      EXPECT_EQ(device_sample(law, key, 100 + i, acceptance).next,
                sample_token(law, key, 100 + i, acceptance));
    }
  }
  std::vector<float> broken(static_cast<std::size_t>(GetParam()), NAN);
  EXPECT_EQ(device_sample(broken, {}, 5, Acceptance::kSpeculative).next, -1);
  std::vector<float> certain(static_cast<std::size_t>(GetParam()));
  certain.back() = 1;
  EXPECT_EQ(device_sample(certain, {}, 5, Acceptance::kSpeculative).next, GetParam() - 1);
}

TEST_P(SampleTest, VerdictsAreTheHosts) {
  const std::int64_t vocab = GetParam();
  int rejected = 0, all = 0;
  for (std::uint32_t i = 0; i < 60; ++i) {
    const std::int64_t n = i % 5;
    std::vector<float> p = laws(n + 1, vocab, 2 * i),
                       q = laws(std::max<std::int64_t>(n, 1), vocab, 2 * i + 1);
    if (i % 4 == 0) std::copy_n(p.begin(), n * vocab, q.begin());  // nothing is left of p - q
    if (i == 7) std::fill_n(p.begin() + vocab, vocab, NAN);
    if (i == 13) std::fill_n(q.begin() + vocab, vocab, NAN);
    std::vector<Token> tokens;
    const DrawKey key{.seed = 3, .prompt = 1, .level = 2, .round = i};
    for (std::int64_t t = 0; t < n; ++t) {
      const std::span law(q.data() + t * vocab, static_cast<std::size_t>(vocab));
      tokens.push_back(std::max(0, sample_token(law, key, 50 + t, Acceptance::kSpeculative)));
    }
    const OnDevice<float> dp(a_, p), dq(a_, q);
    for (const JudgeRule& rule :
         {JudgeRule{}, JudgeRule{Acceptance::kCoupled, Correction::kResidual, {}},
          JudgeRule{Acceptance::kSpeculative, Correction::kTarget, {}},
          JudgeRule{Acceptance::kSpeculative, Correction::kResidual, 0.7}}) {
      judge(make_view(dp.data(), DType::kF32, {n + 1, vocab}),
            n == 0 ? TensorView{} : make_view(dq.data(), DType::kF32, {n, vocab}), tokens, key, 50,
            rule, verdict(), nullptr);
      TF_CUDA(cudaDeviceSynchronize());
      const Verdict expected = judge_proposals({p.data(), vocab, vocab}, {q.data(), vocab, vocab},
                                               tokens, key, 50, rule);
      EXPECT_EQ(verdict()->accepted, expected.accepted) << i;
      EXPECT_EQ(verdict()->next, expected.next) << i;
      ++(expected.accepted < n ? rejected : all);
    }
  }
  EXPECT_GT(rejected, 20);
  EXPECT_GT(all, 20);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, SampleTest, ::testing::Values(3, 256, 1001));

}  // namespace
}  // namespace triforce::kernels
