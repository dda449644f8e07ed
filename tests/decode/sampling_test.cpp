#include "triforce/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include "selftest/lossless.h"
#include "statistics/distributions.h"

namespace triforce {
namespace {

// Known answers published with Random123 (kat_vectors, philox4x32 10 rounds).
TEST(Philox, MatchesPublishedVectors) {
  const auto run = [](std::array<std::uint32_t, 4> c, std::uint32_t k0, std::uint32_t k1) {
    philox4x32_10(c.data(), k0, k1);
    return c;
  };
  EXPECT_EQ(run({0, 0, 0, 0}, 0, 0),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(run({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(run({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, TheFirstSiblingHasTheNumberOfAChain) {
  const DrawKey key{.seed = 5, .prompt = 6, .level = 3, .round = 7};
  EXPECT_EQ(philox_uniform(key, Purpose::kAccept, 9), philox_uniform(key, Purpose::kAccept, 9, 0));
  std::uint32_t words[4] = {9, 7, 6, 2U << 16 | 3U << 8 | 2U}, found[4];
  philox4x32_10(words, 5, 0);
  philox_words(key, Purpose::kAccept, 9, 2, found);
  EXPECT_TRUE(std::equal(words, words + 4, found));
}

TEST(Philox, EveryPartOfTheKeyMatters) {
  std::set<double> seen;
  for (const std::uint64_t seed : {1ULL, 2ULL, 1ULL << 40})
    for (const std::uint32_t prompt : {0U, 1U})
      for (const std::uint32_t level : {0U, 1U})
        for (const std::uint32_t round : {1U, 2U})
          for (const std::uint32_t position : {0U, 9U})
            for (const Purpose p : {Purpose::kPropose, Purpose::kAccept, Purpose::kCorrect})
              for (const std::uint32_t sibling : {0U, 1U, 256U})
                seen.insert(philox_uniform({seed, prompt, level, round}, p, position, sibling));
  EXPECT_EQ(seen.size(), 3U * 2 * 2 * 2 * 2 * 3 * 3);
  EXPECT_GE(*seen.begin(), 0.0);
  EXPECT_LT(*seen.rbegin(), 1.0);
}

std::vector<std::int64_t> count_draws(const std::vector<float>& probs, Acceptance acceptance,
                                      std::int64_t runs) {
  std::vector<std::int64_t> counts(probs.size());
  for (std::int64_t r = 0; r < runs; ++r)
    ++counts[static_cast<std::size_t>(
        sample_token(probs, {77, 0, 0, static_cast<std::uint32_t>(r)}, r, acceptance))];
  return counts;
}

TEST(Sample, FollowsTheProbsUnderBothAcceptanceRules) {
  const std::vector<float> probs = {0.5F, 0.0F, 0.25F, 0.125F, 0.0625F, 0.0625F};
  const std::vector<double> exact(probs.begin(), probs.end());
  for (const Acceptance a : {Acceptance::kSpeculative, Acceptance::kCoupled}) {
    const auto counts = count_draws(probs, a, 200000);
    EXPECT_EQ(counts[1], 0);
    EXPECT_GE(chi_square("sample", exact, counts).p_value, kAlpha);
    const std::vector<double> wrong = {0.48, 0.0, 0.27, 0.125, 0.0625, 0.0625};
    EXPECT_LT(chi_square("sample", wrong, counts).p_value, kAlpha);
  }
}

TEST(Sample, CoupledNoiseKnowsNoRoundAndNoLevel) {
  const std::vector<float> probs = {0.25F, 0.25F, 0.25F, 0.25F};
  for (std::int64_t at = 0; at < 50; ++at) {
    const Token t = sample_token(probs, {5, 1, 0, 1}, at, Acceptance::kCoupled);
    EXPECT_EQ(sample_token(probs, {5, 1, 2, 99}, at, Acceptance::kCoupled), t);
  }
}

TEST(Sample, OneHotProbsNeedNoLuck) {
  const std::vector<float> probs = {0.0F, 0.0F, 1.0F};
  for (std::uint32_t r = 0; r < 20; ++r) {
    EXPECT_EQ(sample_token(probs, {r, 0, 0, r}, 3, Acceptance::kSpeculative), 2);
    EXPECT_EQ(sample_token(probs, {r, 0, 0, r}, 3, Acceptance::kCoupled), 2);
  }
}

TEST(Sample, ReportsProbsThatAreNotFinite) {
  const std::vector<float> probs(3, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(sample_token(probs, {}, 0, Acceptance::kSpeculative), -1);
  EXPECT_EQ(sample_token(probs, {}, 0, Acceptance::kCoupled), -1);
}

TEST(Verify, ReportsOnlyProbsItNeeds) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> p = {0.0F, 1.0F, nan, nan};  // rejects token 0 at once
  const std::vector<float> q = {1.0F, 0.0F};
  const std::vector<Token> t = {0};
  EXPECT_EQ(verify_proposals({p.data(), 2, 2}, {q.data(), 2, 2}, t, {}, 0, {}).next, 1);
  const std::vector<float> p2 = {1.0F, 0.0F, nan,
                                 nan};  // accepts: the bonus distribution is needed
  const VerifyResult v = verify_proposals({p2.data(), 2, 2}, {q.data(), 2, 2}, t, {}, 0, {});
  EXPECT_EQ(v.accepted, 1);
  EXPECT_EQ(v.next, -1);
}

TEST(Verify, EqualProbsAcceptEverything) {
  const std::vector<float> p = {0.3F, 0.7F, 0.3F, 0.7F, 0.3F, 0.7F};
  const std::vector<Token> t = {0, 1};
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    EXPECT_EQ(
        verify_proposals({p.data(), 2, 2}, {p.data(), 2, 2}, t, {seed, 0, 1, 1}, 10, {}).accepted,
        2);
}

TEST(Verify, SyntheticRateDecidesAlone) {
  const std::vector<float> p = {0.0F, 1.0F, 0.0F, 1.0F};  // would always reject token 0
  const std::vector<float> q = {1.0F, 0.0F};
  const std::vector<Token> t = {0};
  VerifyRule rule;
  rule.synthetic_rate = 0.75;
  std::vector<std::int64_t> counts(2);
  for (std::uint64_t seed = 0; seed < 20000; ++seed)
    ++counts[static_cast<std::size_t>(
        verify_proposals({p.data(), 2, 2}, {q.data(), 2, 2}, t, {seed, 0, 1, 1}, 0, rule)
            .accepted)];
  EXPECT_GE(chi_square("synthetic", {0.25, 0.75}, counts).p_value, kAlpha);
}

TEST(ChiSquare, AgreesWithTabulatedQuantiles) {
  // Upper 5% and 0.1% points of the chi-square distribution (any statistics handbook).
  EXPECT_NEAR(chi_square_tail(18.307, 10), 0.05, 0.001);
  EXPECT_NEAR(chi_square_tail(124.342, 100), 0.05, 0.0005);
  EXPECT_NEAR(chi_square_tail(149.449, 100), 0.001, 0.00005);
}

}  // namespace
}  // namespace triforce
