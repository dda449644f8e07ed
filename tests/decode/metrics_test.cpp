#include "triforce/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "triforce/decode.h"
#include "triforce/predict.h"

namespace triforce {
namespace {

TEST(LevelCounters, CountsTokensUpToTheFirstRejection) {
  LevelCounters c;
  c.add_round(4, 4, 4);
  c.add_round(4, 4, 1);
  c.add_round(2, 2, 0);
  EXPECT_EQ(c.rounds, 3);
  EXPECT_EQ(c.drafted, 10);
  EXPECT_EQ(c.accepted, 5);
  EXPECT_EQ(c.rejected, 2);
  EXPECT_EQ(c.emitted, 8);
  EXPECT_EQ(c.tested_at, (std::vector<std::int64_t>{3, 2, 1, 1}));
  EXPECT_EQ(c.accepted_at, (std::vector<std::int64_t>{2, 1, 1, 1}));
  EXPECT_EQ(c.histogram, (std::vector<std::int64_t>{1, 1, 0, 0, 1}));
  EXPECT_EQ(std::accumulate(c.tested_at.begin(), c.tested_at.end(), std::int64_t{0}),
            c.accepted + c.rejected);
  EXPECT_DOUBLE_EQ(c.acceptance_rate(), 5.0 / 7.0);
  EXPECT_DOUBLE_EQ(c.accepted_per_drafted(), 0.5);
  EXPECT_DOUBLE_EQ(c.mean_accepted_length(), 8.0 / 3.0);
}

TEST(LevelCounters, MergingEqualsCountingTogether) {
  LevelCounters a, b, both;
  a.add_round(3, 3, 2);
  both.add_round(3, 3, 2);
  b.add_round(6, 6, 6);
  both.add_round(6, 6, 6);
  a.merge(b);
  EXPECT_EQ(a.tested_at, both.tested_at);
  EXPECT_EQ(a.accepted_at, both.accepted_at);
  EXPECT_EQ(a.histogram, both.histogram);
  EXPECT_EQ(a.emitted, both.emitted);
}

TEST(LevelCounters, RatesOfNothingAreNotNumbers) {
  const LevelCounters c;
  EXPECT_TRUE(std::isnan(c.acceptance_rate()));
  EXPECT_TRUE(std::isnan(c.alpha()));
}

// The paper's Table 2 reports .9234 where the released code's counters give accepted / drafted of
// about .77 at gamma 6; alpha 0.91 corresponds to 0.73.
TEST(Alpha, InvertsTheGeometricSum) {
  for (const double a : {0.0, 0.3, 0.6, 0.91, 0.999, 1.0}) {
    double sum = 0, power = 1;
    for (int i = 0; i <= 6; ++i, power *= a) sum += power;
    EXPECT_NEAR(alpha_from_tokens_per_round(sum, 6), a, 1e-12) << a;
  }
  EXPECT_NEAR(alpha_from_tokens_per_round(1 + 6 * 0.73, 6), 0.91, 0.005);
}

// A level that asks for g tokens solves with g, though an inner level may hand it more.
TEST(Alpha, SolvesWithWhatWasAskedFor) {
  LevelCounters c;
  c.add_round(6, 7, 5);
  c.add_round(6, 6, 4);
  EXPECT_DOUBLE_EQ(c.alpha(), alpha_from_tokens_per_round(5.5, 6));
  c.add_round(6, 7, 7);
  c.add_round(6, 7, 7);
  c.add_round(6, 7, 7);
  EXPECT_EQ(c.alpha(), 1.0);  // six a round were asked for, six were accepted
}

// One level by simulation: every proposal is accepted with the level's probability, and every pass
// costs its time. Two levels by the formula of the paper, ((g / E1)(k T0 + T1) + T2) / E2.
TEST(Prediction, IsWhatASimulationTakes) {
  StepCurves steps;
  steps[Pass::kDraft].points = {{1, 0.2}};
  steps[Pass::kRetrieval].points = {{1, 2.0}, {4, 2.6}};
  steps[Pass::kFull].points = {{1, 10.0}, {9, 14.0}};
  const Gammas gammas{5, 2};
  std::mt19937_64 random(7);
  std::bernoulli_distribution accepts(0.9);
  double ms = 0, tokens = 0;
  for (int round = 0; round < 40000; ++round) {
    ms += 5 * 0.2 + 12.5;
    ++tokens;
    for (int i = 0; i < 5 && accepts(random); ++i) ++tokens;
  }
  const MethodSpec& one = spec_of(parse_method("draft").value());
  EXPECT_NEAR(*predicted_ms_per_token(one, steps, std::vector{0.9}, gammas), ms / tokens,
              0.02 * ms / tokens);
  const double e1 = 1 + 0.6 + 0.36;
  double e2 = 0;
  for (int i = 0; i <= 5; ++i) e2 += std::pow(0.9, i);
  const double expected = ((5 / e1) * (2 * 0.2 + 2.4) + 12.5) / e2;
  const MethodSpec& two = spec_of(kDefaultMethod);
  EXPECT_NEAR(*predicted_ms_per_token(two, steps, std::vector{0.6, 0.9}, gammas), expected, 1e-12);
}

TEST(Prediction, NeedsEveryPassAndFiniteAcceptances) {
  StepCurves steps;
  steps[Pass::kFull].points = {{1, 10.0}};
  const MethodSpec& one = spec_of(parse_method("draft").value());
  EXPECT_EQ(predicted_ms_per_token(spec_of(kBaselineMethod), steps, {}, {}), 10.0);
  EXPECT_FALSE(predicted_ms_per_token(one, steps, std::vector{0.5}, {}).has_value());
  steps[Pass::kDraft].points = {{1, 1.0}};
  EXPECT_TRUE(predicted_ms_per_token(one, steps, std::vector{0.5}, {}).has_value());
  EXPECT_FALSE(predicted_ms_per_token(one, steps, {}, {}).has_value());
  EXPECT_FALSE(predicted_ms_per_token(one, steps, std::vector<double>{NAN}, {}).has_value());
}

TEST(ChooseGammas, AreTheBestOfAll) {
  StepCurves steps;
  steps[Pass::kDraft].points = {{1, 0.1}};
  steps[Pass::kRetrieval].points = {{1, 9.03}};
  steps[Pass::kFull].points = {{1, 44.4}};
  const MethodSpec& m = spec_of(kDefaultMethod);
  const std::vector<double> alphas = {0.6, 0.95};
  const Gammas max{kMaxGamma, kMaxGamma}, given{6, 3};
  const auto at = [&](int g, int k) { return *predicted_ms_per_token(m, steps, alphas, {g, k}); };
  const Gammas both = *choose_gammas(m, steps, alphas, max, given, {true, true});
  const Gammas outer = *choose_gammas(m, steps, alphas, max, given, {true, false});
  const Gammas inner = *choose_gammas(m, steps, alphas, max, given, {false, true});
  EXPECT_EQ(outer.inner_gamma, 3);
  EXPECT_EQ(inner.gamma, 6);
  for (int g = 1; g <= kMaxGamma; ++g) {
    EXPECT_LE(at(outer.gamma, 3), at(g, 3));
    EXPECT_LE(at(6, inner.inner_gamma), at(6, g));
    for (int k = 1; k <= kMaxGamma; ++k) EXPECT_LE(at(both.gamma, both.inner_gamma), at(g, k));
  }
}

}  // namespace
}  // namespace triforce
