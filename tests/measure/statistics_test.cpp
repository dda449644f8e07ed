#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "triforce/random.h"

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

// P(median of a resample <= k-th smallest of n distinct samples): at least (n + 1) / 2 of n draws
// fall on the k smallest.
double bootstrap_cdf(int n, int k) {
  const double p = static_cast<double>(k) / n;
  double sum = 0;
  for (int j = (n + 1) / 2; j <= n; ++j) {
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(j + 1) - std::lgamma(n - j + 1)) *
           std::pow(p, j) * std::pow(1 - p, n - j);
  }
  return sum;
}

TEST(BootstrapMedian, EqualsTheExactBootstrapDistribution) {
  // For odd n a resample's median is one of the samples, so the ends are order statistics that
  // binomial sums name exactly wherever no sum lies within resampling error of 2.5%.
  for (const int n : {5, 7, 11, 17, 27}) {
    Samples x(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = (i * 2) % n;  // all of 0..n-1
    int low = 1;
    while (bootstrap_cdf(n, low) < 0.025) ++low;
    const double error = 6 * std::sqrt(0.025 * 0.975 / kBootstrapResamples);
    ASSERT_GT(std::abs(bootstrap_cdf(n, low) - 0.025), error) << n;
    ASSERT_GT(std::abs(bootstrap_cdf(n, low - 1) - 0.025), error) << n;
    const auto interval = bootstrap_median(x, 42);
    ASSERT_TRUE(interval.has_value());
    EXPECT_DOUBLE_EQ(interval->low, low - 1) << n;
    EXPECT_DOUBLE_EQ(interval->high, n - low) << n;
  }
}

TEST(BootstrapMedian, NeedsFiveSamples) {
  EXPECT_FALSE(bootstrap_median(Samples{1, 2, 3, 4}, 1).has_value());
  const auto five = bootstrap_median(Samples{5, 4, 3, 2, 1}, 1);
  ASSERT_TRUE(five.has_value());
  EXPECT_DOUBLE_EQ(five->low, 1);
  EXPECT_DOUBLE_EQ(five->high, 5);
}

TEST(BootstrapMedian, RepeatsForASeed) {
  Samples x;
  for (int i = 0; i < 40; ++i) x.push_back(std::sin(i * 12.9898) * 3 + i);
  const auto a = bootstrap_median(x, 7), b = bootstrap_median(x, 7);
  EXPECT_EQ(a->low, b->low);
  EXPECT_EQ(a->high, b->high);
}

// Standard normal from two uniforms, for the coverage test.
double normal(std::uint64_t seed, std::uint32_t i) {
  const DrawKey key{seed, 0, 0, 0};
  const double u = 1.0 - philox_uniform(key, Purpose::kPropose, 2 * i);
  const double v = philox_uniform(key, Purpose::kPropose, 2 * i + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
}

TEST(BootstrapMedian, CoversTheMedianOfNormalSamples) {
  // The interval is [x(l), x(n+1-l)], whose coverage of the true median is 1 - 2 P(Bin(n, 1/2) < l)
  // whatever the distribution. n = 11: l = 3, coverage 1 - 2 (1 + 11 + 55) / 2^11 = 0.93457.
  constexpr int kTrials = 300, kN = 11;
  constexpr double kCoverage = 1 - 2 * 67.0 / 2048;
  int covered = 0;
  for (int t = 0; t < kTrials; ++t) {
    Samples x;
    for (int i = 0; i < kN; ++i) {
      x.push_back(10 + normal(1000 + static_cast<std::uint64_t>(t), static_cast<std::uint32_t>(i)));
    }
    const auto interval = bootstrap_median(x, static_cast<std::uint64_t>(t));
    covered += interval->low <= 10 && 10 <= interval->high ? 1 : 0;
  }
  const double coverage = static_cast<double>(covered) / kTrials;
  const double error = 5 * std::sqrt(kCoverage * (1 - kCoverage) / kTrials);
  EXPECT_NEAR(coverage, kCoverage, error);
}

TEST(MedianRatio, OfProportionalPairsIsExact) {
  // The drift of the machine hits both of a pair; resampling pairs, it cancels.
  Samples base, other;
  for (int i = 0; i < 11; ++i) {
    const double drift = 1.0 + 0.25 * i;
    base.push_back(6 * drift);
    other.push_back(2 * drift);
  }
  const auto r = median_ratio(base, other, 3);
  ASSERT_TRUE(r && r->interval);
  EXPECT_DOUBLE_EQ(r->value, 3.0);
  EXPECT_DOUBLE_EQ(r->interval->low, 3.0);
  EXPECT_DOUBLE_EQ(r->interval->high, 3.0);
}

TEST(MedianRatio, IsTheRatioOfMediansNotTheMedianOfRatios) {
  const auto r = median_ratio(Samples{1, 2, 30}, Samples{1, 1, 2}, 3);
  EXPECT_DOUBLE_EQ(r->value, 2.0);
  EXPECT_FALSE(r->interval.has_value());
  const auto even = median_ratio(Samples{9, 10, 11}, Samples{4, 1, 5}, 3);
  EXPECT_DOUBLE_EQ(even->value, 2.5);  // ratios: 2.25, 10, 2.2
}

TEST(MedianRatio, EmptyAndUnequal) {
  EXPECT_FALSE(median_ratio({}, {}, 1).has_value());
  EXPECT_THROW(median_ratio(Samples{1}, Samples{1, 2}, 1), Error);
}

TEST(Summarize, PercentilesNeedSamples) {
  Samples x(99);
  std::iota(x.begin(), x.end(), 1.0);
  const auto of = [&](std::size_t n) { return summarize(std::span(x).first(n), 1); };
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
  EXPECT_LT(*d.ci95_low, 50.5);
  EXPECT_GT(*d.ci95_high, 50.5);
}

TEST(Summarize, NothingMeasuredIsNothing) {
  const Distribution d = summarize({}, 1);
  EXPECT_EQ(d.n, 0);
  EXPECT_FALSE(d.mean || d.median || d.stddev || d.min || d.max || d.p90 || d.ci95_low);
  const Distribution one = summarize(Samples{4}, 1);
  EXPECT_DOUBLE_EQ(*one.median, 4);
  EXPECT_FALSE(one.stddev || one.ci95_low || one.ci95_high);
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
