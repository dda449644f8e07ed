#include "statistics/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace triforce {
namespace {

using Samples = std::vector<double>;

TEST(Quantile, InterpolatesBetweenOrderStatistics) {
  const Samples x = {1, 2, 4, 8, 16};  // (n - 1) p = 4 p
  EXPECT_DOUBLE_EQ(quantile(x, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(quantile(x, 0.25), 2.0);
  EXPECT_DOUBLE_EQ(quantile(x, 0.5), 4.0);
  EXPECT_DOUBLE_EQ(quantile(x, 0.625), 6.0);
  EXPECT_DOUBLE_EQ(quantile(x, 0.875), 12.0);
  EXPECT_DOUBLE_EQ(quantile(x, 1.0), 16.0);
  EXPECT_DOUBLE_EQ(quantile(Samples{7}, 0.9), 7.0);
}

TEST(Quantile, RefusesNoSamples) {
  EXPECT_THROW(quantile({}, 0.5), Error);
  EXPECT_THROW(median({}), Error);
}

TEST(Median, OddAndEven) {
  EXPECT_DOUBLE_EQ(median(Samples{5, 1, 3}), 3.0);
  EXPECT_DOUBLE_EQ(median(Samples{8, 1, 4, 2}), 3.0);
  EXPECT_DOUBLE_EQ(median(Samples{2}), 2.0);
}

TEST(Stddev, IsTheSampleOne) {
  EXPECT_DOUBLE_EQ(*stddev(Samples{2, 4, 4, 4, 5, 5, 7, 9}), std::sqrt(32.0 / 7.0));
  EXPECT_FALSE(stddev(Samples{3}).has_value());
  EXPECT_FALSE(stddev({}).has_value());
}

TEST(StudentT, EqualsThePrintedTable) {
  // 97.5% quantiles to five decimals, as statistical tables print them.
  for (const auto& [freedom, t] : {std::pair{1, 12.70620},
                                   {2, 4.30265},
                                   {3, 3.18245},
                                   {4, 2.77645},
                                   {5, 2.57058},
                                   {6, 2.44691},
                                   {7, 2.36462},
                                   {8, 2.30600},
                                   {9, 2.26216},
                                   {10, 2.22814},
                                   {19, 2.09302},
                                   {29, 2.04523},
                                   {30, 2.04227},
                                   {40, 2.02108},
                                   {60, 2.00030},
                                   {100, 1.98397},
                                   {120, 1.97993},
                                   {1000, 1.96234}}) {
    EXPECT_NEAR(student_t95(freedom), t, 0.5000001e-5) << freedom;
  }
  EXPECT_NEAR(student_t95(1'000'000'000), kNormal95, 1e-8);
  EXPECT_THROW(student_t95(0), Error);
}

TEST(StudentT, EqualsThePrintedTableOfOneSide) {
  for (const auto& [freedom, t] : {std::pair{1, 6.31375},
                                   {2, 2.91999},
                                   {5, 2.01505},
                                   {10, 1.81246},
                                   {30, 1.69726},
                                   {120, 1.65765},
                                   {1000, 1.64638}}) {
    EXPECT_NEAR(student_t(freedom, 0.90), t, 0.5000001e-5) << freedom;
  }
  EXPECT_NEAR(normal_z(0.95), kNormal95, 1e-12);
  EXPECT_NEAR(normal_z(0.90), 1.6448536269514722, 1e-12);
  EXPECT_NEAR(normal_z(0.80), 1.2815515655446004, 1e-12);
  EXPECT_THROW(student_t(5, 1.0), Error);
}

TEST(GeometricMean, OfPromptsWithTheirInterval) {
  // Mean logarithms log 2, log 4 and log 8: mean log 4, deviation log 2.
  const std::vector<Samples> prompts = {{1, 4}, {4}, {8, 8, 8}};
  const auto e = geometric_mean(prompts);
  ASSERT_TRUE(e && e->interval);
  EXPECT_DOUBLE_EQ(e->value, 4);
  const double half = 4.302652730 / std::sqrt(3.0);
  EXPECT_NEAR(e->interval->low, 4 * std::pow(2, -half), 1e-8);
  EXPECT_NEAR(e->interval->high, 4 * std::pow(2, half), 1e-6);
  EXPECT_EQ(e->over, IntervalOver::kPrompts);
}

TEST(GeometricMean, OfOnePromptIsOverItsRepetitionsAndSaysSo) {
  const auto e = geometric_mean(std::vector<Samples>{{}, {2, 8}});
  ASSERT_TRUE(e && e->interval);
  EXPECT_DOUBLE_EQ(e->value, 4);
  // Deviation log 4 / sqrt 2, over sqrt 2: log 2.
  EXPECT_NEAR(e->interval->high, 4 * std::pow(2, 12.706204736), 0.1);
  EXPECT_EQ(e->over, IntervalOver::kRepetitions);
  EXPECT_FALSE(geometric_mean(std::vector<Samples>{{3}})->interval.has_value());
}

TEST(GeometricMean, OfNothingOrOfWhatIsNoTime) {
  EXPECT_FALSE(geometric_mean({}).has_value());
  EXPECT_FALSE(geometric_mean(std::vector<Samples>{{}, {}}).has_value());
  EXPECT_FALSE(geometric_mean(std::vector<Samples>{{1}, {0}}).has_value());
  EXPECT_FALSE(geometric_mean(std::vector<Samples>{{1}, {-1}}).has_value());
}

TEST(Ratio, OfProportionalPairsIsExact) {
  // Prompts and the drift of the machine change both of a pair, and cancel.
  std::vector<Samples> base(3), other(3);
  for (std::size_t p = 0; p < 3; ++p) {
    for (std::size_t i = 0; i < 3 + p; ++i) {
      const double drift = 1.0 + 0.25 * static_cast<double>(i) + static_cast<double>(p);
      base[p].push_back(6 * drift);
      other[p].push_back(2 * drift);
    }
  }
  const auto r = ratio_interval(base, other);
  ASSERT_TRUE(r && r->interval);
  EXPECT_NEAR(r->value, 3.0, 1e-12);
  EXPECT_NEAR(r->interval->low, 3.0, 1e-12);
  EXPECT_NEAR(r->interval->high, 3.0, 1e-12);
}

TEST(Ratio, IsThatOfTheGeometricMeans) {
  const std::vector<Samples> base = {{1, 2}, {30, 5}}, other = {{3, 1}, {2, 7}};
  EXPECT_NEAR(ratio_interval(base, other)->value,
              geometric_mean(base)->value / geometric_mean(other)->value, 1e-12);
  EXPECT_FALSE(ratio_interval({}, {}).has_value());
  EXPECT_THROW(ratio_interval(base, std::vector<Samples>{{1, 2}}), Error);
  EXPECT_THROW(ratio_interval(base, std::vector<Samples>{{1, 2}, {1}}), Error);
}

TEST(Proportion, IsWilsonsWhereTheJackknifeFindsFewTrials) {
  // Shares of .5, .7 and .9 of 10 each: without one .8, .7, .6; variance 2/3 * .02; effective
  // trials .21 / .01333 = 15.75, times (1.95996 / 4.30265)^2: 3.26818.
  const auto i = proportion_interval(std::vector<Share>{{5, 10}, {7, 10}, {9, 10}, {0, 0}}, 30);
  ASSERT_TRUE(i.has_value());
  const double n = 15.75 * std::pow(kNormal95 / 4.302652730, 2), z2 = kNormal95 * kNormal95;
  // The ends are the p for which (.7 - p)^2 = z2 p (1 - p) / n.
  for (const double p : {i->low, i->high}) {
    EXPECT_NEAR((0.7 - p) * (0.7 - p), z2 * p * (1 - p) / n, 1e-9);
  }
  EXPECT_LT(i->low, 0.7);
  EXPECT_GT(i->high, 0.7);
}

TEST(Proportion, IsNoNarrowerThanOfIndependentTrials) {
  // Prompts that agree to the last trial: Wilson's interval of 80 of 100 is .7112 to .8666.
  const auto same = proportion_interval(std::vector<Share>(4, Share{20, 25}), 100);
  ASSERT_TRUE(same.has_value());
  EXPECT_NEAR(same->low, 0.7112, 5e-5);
  EXPECT_NEAR(same->high, 0.8666, 5e-5);
  // All of 10: 1 / (1 + z2 / 10) to 1.
  const auto all = proportion_interval(std::vector<Share>(2, Share{5, 5}), 10);
  EXPECT_NEAR(all->low, 0.72247, 5e-6);
  EXPECT_DOUBLE_EQ(all->high, 1);
  EXPECT_DOUBLE_EQ(proportion_interval(std::vector<Share>(2, Share{0, 5}), 10)->low, 0);
}

TEST(Proportion, NeedsTwoPrompts) {
  EXPECT_FALSE(proportion_interval({}, 0).has_value());
  EXPECT_FALSE(proportion_interval(std::vector<Share>{{5, 10}, {0, 0}}, 10).has_value());
}

TEST(RateDifference, IsThatOfTheMeanWhereUnitsAreEqual) {
  // With equal wholes the pseudo-values are the units' own differences: .1, .2, .3, .0.
  const std::vector<SharePair> pairs = {{{50, 100}, {60, 100}},
                                        {{40, 100}, {60, 100}},
                                        {{50, 100}, {80, 100}},
                                        {{0, 0}, {3, 10}},  // left out
                                        {{70, 100}, {70, 100}}};
  const RateDifference d = *rate_difference(pairs, 0.90);
  EXPECT_EQ(d.units, 4);
  EXPECT_DOUBLE_EQ(d.base, 0.525);
  EXPECT_DOUBLE_EQ(d.other, 0.675);
  const double error = std::sqrt((0.0025 + 0.0025 + 0.0225 + 0.0225) / 3 / 4);
  EXPECT_NEAR(d.interval->low, 0.15 - 2.353363 * error, 1e-6);
  EXPECT_NEAR(d.interval->high, 0.15 + 2.353363 * error, 1e-6);
  EXPECT_NEAR(rate_difference(pairs, 0.95)->interval->low, 0.15 - 3.182446 * error, 1e-6);
  const double independent = (0.525 * 0.475 + 0.675 * 0.325) / 400;
  EXPECT_NEAR(*d.design_effect, error * error / independent, 1e-12);
}

// Of 10 trials a unit 2 changed in each: without a floor the interval would be a point.
TEST(RateDifference, UnitsThatAgreeAreStillTrials) {
  const std::vector<SharePair> pairs = {{{8, 10}, {6, 10}}, {{8, 10}, {6, 10}}, {{8, 10}, {6, 10}}};
  const RateDifference d = *rate_difference(pairs, 0.90);
  EXPECT_NEAR(d.interval->low, -0.2 - 2.91999 * std::sqrt(0.2 / 30), 1e-6);
  EXPECT_NEAR(d.interval->high, -0.2 + 2.91999 * std::sqrt(0.2 / 30), 1e-6);
}

TEST(RateDifference, NeedsUnits) {
  EXPECT_FALSE(rate_difference({}, 0.90).has_value());
  EXPECT_FALSE(rate_difference(std::vector<SharePair>{{{0, 0}, {1, 2}}}, 0.90).has_value());
  const RateDifference one = *rate_difference(std::vector<SharePair>{{{1, 4}, {3, 4}}}, 0.90);
  EXPECT_FALSE(one.interval || one.design_effect);
  const std::vector<SharePair> sure = {{{4, 4}, {4, 4}}, {{9, 9}, {9, 9}}};
  EXPECT_DOUBLE_EQ(rate_difference(sure, 0.90)->interval->high, 0);
  EXPECT_FALSE(rate_difference(sure, 0.90)->design_effect.has_value());
}

TEST(TrialsToTell, IsTheTextbooks) {
  // (1.6449 + 1.2816)^2 (.8 * .2 + .79 * .21) / .01^2
  EXPECT_NEAR(trials_to_tell(0.8, 0.01), 8.563847 * 0.3259 * 1e4, 0.1);
  EXPECT_NEAR(trials_to_tell(0.005, 0.01), 8.5638 * 0.005 * 0.995 * 1e4, 1);  // never below 0
  EXPECT_THROW(trials_to_tell(1.0, 0.01), Error);
}

TEST(Summarize, PercentilesNeedSamples) {
  Samples x(99);
  std::iota(x.begin(), x.end(), 1.0);
  const auto of = [&](std::size_t n) {
    return summarize(std::vector<Samples>{Samples(x.begin(), x.begin() + std::ptrdiff_t(n))});
  };
  EXPECT_FALSE(of(9).p90.has_value());
  EXPECT_TRUE(of(10).p90.has_value());
  EXPECT_FALSE(of(19).p95.has_value());
  EXPECT_TRUE(of(20).p95.has_value());
  EXPECT_FALSE(of(99).p99.has_value());
  x.push_back(100);
  const Distribution d = of(100);
  EXPECT_EQ(d.n, 100);
  EXPECT_DOUBLE_EQ(*d.mean, 50.5);
  EXPECT_DOUBLE_EQ(*d.median, 50.5);
  EXPECT_DOUBLE_EQ(*d.stddev, std::sqrt(100.0 * 101.0 / 12.0));
  EXPECT_DOUBLE_EQ(*d.min, 1);
  EXPECT_DOUBLE_EQ(*d.max, 100);
  EXPECT_DOUBLE_EQ(*d.p90, 90.1);
  EXPECT_DOUBLE_EQ(*d.p95, 95.05);
  EXPECT_DOUBLE_EQ(*d.p99, 99.01);
  EXPECT_LT(*d.ci95_low, *d.geometric_mean);
  EXPECT_GT(*d.ci95_high, *d.geometric_mean);
  EXPECT_EQ(d.ci95_over, IntervalOver::kRepetitions);
}

TEST(Summarize, NothingMeasuredIsNothing) {
  const Distribution d = summarize({});
  EXPECT_EQ(d.n, 0);
  EXPECT_FALSE(d.geometric_mean || d.ci95_over || d.mean || d.median || d.stddev || d.min ||
               d.max || d.p90 || d.ci95_low);
  const Distribution one = summarize(std::vector<Samples>{{4}});
  EXPECT_DOUBLE_EQ(*one.median, 4);
  EXPECT_DOUBLE_EQ(*one.geometric_mean, 4);
  EXPECT_FALSE(one.stddev || one.ci95_low || one.ci95_high || one.ci95_over);
}

TEST(Summarize, EveryPromptCountsAlikeInTheGeometricMean) {
  const Distribution d = summarize(std::vector<Samples>{{2, 2, 2}, {8}});
  EXPECT_EQ(d.n, 4);
  EXPECT_DOUBLE_EQ(*d.geometric_mean, 4);
  EXPECT_DOUBLE_EQ(*d.mean, 3.5);
  EXPECT_DOUBLE_EQ(*d.median, 2);
  EXPECT_EQ(d.ci95_over, IntervalOver::kPrompts);
}

TEST(Noise, IsWithinGroups) {
  // Both prompts have deviation 1% of their mean; that one takes twice as long is no noise.
  const std::vector<Samples> groups = {{99, 100, 101}, {198, 200, 202}};
  EXPECT_DOUBLE_EQ(*noise_percent(groups), 1.0);
}

TEST(Noise, WeighsByDegreesOfFreedom) {
  // Variances (1%)^2 with 2 degrees of freedom, 0 with 4: sqrt(2 / 6) percent.
  const std::vector<Samples> groups = {{99, 100, 101}, {5, 5, 5, 5, 5}, {3}, {}};
  EXPECT_DOUBLE_EQ(*noise_percent(groups), std::sqrt(2.0 / 6.0));
  EXPECT_FALSE(noise_percent(std::vector<Samples>{{3}, {4}}).has_value());
}

}  // namespace
}  // namespace triforce
