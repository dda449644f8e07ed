#include "statistics/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "triforce/error.h"
#include "triforce/format.h"

namespace triforce {
namespace {

using Samples = std::vector<double>;

// Pairs of a value of `other` above one of `base`, equal ones by half: twice that, an integer.
int doubled_u(const Samples& base, const Samples& other) {
  int u = 0;
  for (const double x : base)
    for (const double y : other) u += (y > x ? 2 : 0) + (y == x ? 1 : 0);
  return u;
}

// Every assignment of a stratum's values to its sides: the values of U, one an assignment.
std::vector<int> all_of(const Stratum& s) {
  Samples values = s.base;
  values.insert(values.end(), s.other.begin(), s.other.end());
  std::vector<int> is_other(values.size(), 0), all;
  std::fill(is_other.end() - std::ptrdiff_t(s.other.size()), is_other.end(), 1);
  do {
    Samples base, other;
    for (std::size_t i = 0; i < values.size(); ++i)
      (is_other[i] != 0 ? other : base).push_back(values[i]);
    all.push_back(doubled_u(base, other));
  } while (std::next_permutation(is_other.begin(), is_other.end()));
  return all;
}

// By counting: the sum over the strata over all combinations of their assignments.
RankTest enumerated(const std::vector<Stratum>& strata) {
  std::vector<int> sums = {0};
  int seen = 0;
  for (const Stratum& s : strata) {
    seen += doubled_u(s.base, s.other);
    std::vector<int> next;
    for (const int u : all_of(s))
      for (const int sum : sums) next.push_back(sum + u);
    sums = std::move(next);
  }
  const auto share = [&](auto count) { return double(count) / double(sums.size()); };
  return {share(std::count_if(sums.begin(), sums.end(), [&](int u) { return u >= seen; })),
          share(std::count_if(sums.begin(), sums.end(), [&](int u) { return u <= seen; })),
          1.0 / double(sums.size())};
}

void expect_enumerated(const std::vector<Stratum>& strata) {
  const RankTest expected = enumerated(strata), found = mann_whitney(strata);
  EXPECT_NEAR(found.p_greater, expected.p_greater, 1e-12);
  EXPECT_NEAR(found.p_less, expected.p_less, 1e-12);
  EXPECT_NEAR(found.least / expected.least, 1, 1e-9);
}

// Values 0..9 in an order that has nothing to do with their sides.
double scattered(int i) { return double((i * 7 + 3) % 10) + 0.1 * ((i * 3) % 7); }

TEST(MannWhitney, EqualsEnumeration) {
  for (int a = 1; a <= 6; ++a) {
    for (int b = 1; b <= 6; ++b) {
      for (int variant = 0; variant < 8; ++variant) {
        Stratum s;
        for (int i = 0; i < a; ++i) s.base.push_back(scattered(i + variant));
        for (int i = 0; i < b; ++i) s.other.push_back(scattered(10 * i + 5 * variant + a));
        if (variant % 2 == 1) {  // ties
          for (auto* side : {&s.base, &s.other})
            for (double& x : *side) x = std::floor(x / 3);
        }
        SCOPED_TRACE(fmt::format("{} and {}, variant {}", a, b, variant));
        expect_enumerated({s});
      }
    }
  }
}

TEST(MannWhitney, EqualsEnumerationOverStrata) {
  const Stratum a = {{1.0, 3.0, 5.0}, {2.0, 4.0, 6.0}}, tied = {{1, 1, 2}, {2, 3}},
                b = {{70, 20}, {30, 90, 10}}, one = {{4}, {5}}, none = {{1, 2}, {}};
  expect_enumerated({a, b});
  expect_enumerated({a, tied, b});
  expect_enumerated({one, one, a, one});
  expect_enumerated({none, a});  // says nothing
  expect_enumerated({{{1, 1}, {1, 1}}});
  EXPECT_EQ(mann_whitney({}).p_greater, 1.0);
}

TEST(MannWhitney, KnownValues) {
  const auto apart = [](int n) {
    Stratum s;
    for (int i = 0; i < n; ++i) {
      s.base.push_back(i);
      s.other.push_back(100 + i);
    }
    return mann_whitney({&s, 1});
  };
  // One over the number of ways to choose n of 2 n.
  EXPECT_NEAR(apart(4).p_greater, 1.0 / 70, 1e-15);
  EXPECT_NEAR(apart(9).p_greater, 1.0 / 48620, 1e-18);
  EXPECT_NEAR(apart(30).p_greater * 118264581564861424.0, 1, 1e-9);
  EXPECT_NEAR(apart(30).least * 118264581564861424.0, 1, 1e-9);
  EXPECT_NEAR(apart(9).p_less, 1, 1e-12);
  // Strata of one and one are coins: 9 of 10 heads or more.
  std::vector<Stratum> coins(10, Stratum{{1}, {2}});
  coins[3] = {{2}, {1}};
  EXPECT_NEAR(mann_whitney(coins).p_greater, 11.0 / 1024, 1e-15);
}

// The same values by both ways: a stratum of two equal values tells nothing, and is one too many.
TEST(MannWhitney, TheApproximationAgreesWithTheExactTest) {
  for (const double shift : {-7.3, 0.0, 2.7, 4.2, 5.3}) {
    std::vector<Stratum> strata(kExactRanksInAll / kExactRanks);
    for (Stratum& s : strata) {
      for (int i = 0; i < int(kExactRanks / 2); ++i) {
        s.base.push_back(i);
        s.other.push_back(i + shift);
      }
    }
    const RankTest exact = mann_whitney(strata);
    strata.push_back({{1}, {1}});
    const RankTest approximate = mann_whitney(strata);
    for (const auto& [near, p] : {std::pair{approximate.p_greater, exact.p_greater},
                                  std::pair{approximate.p_less, exact.p_less}}) {
      if (p > 1e-5) {
        EXPECT_NEAR(near / p, 1, 0.1) << p;
      } else {  // in the far tail it is the larger one
        EXPECT_GT(near, p);
        EXPECT_LT(near, 2e-5);
      }
    }
    EXPECT_NE(approximate.p_less, exact.p_less);  // there are two ways
  }
}

TEST(Holm, AsInTheDefinition) {
  const std::vector<double> p = {0.01, 0.04, 0.03, 0.005}, expected = {0.03, 0.06, 0.06, 0.02};
  const std::vector<double> adjusted = holm(p);
  for (std::size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(adjusted[i], expected[i], 1e-15);
  EXPECT_EQ(holm(std::vector<double>{0.7, 0.9}), (std::vector<double>{1, 1}));
  EXPECT_TRUE(holm({}).empty());
}

Stratum spaced(double level, double factor, int n) {
  Stratum s;
  for (int i = 0; i < n; ++i) {
    const double x = level * std::exp(0.01 * (double(i) / (n - 1) - 0.5));
    s.base.push_back(x);
    s.other.push_back(x * factor);
  }
  return s;
}

TEST(MedianRatio, IsThatOfTheMedians) {
  const Stratum s = {{2, 3, 100}, {3, 6, 7}};
  EXPECT_NEAR(median_ratio({&s, 1}).ratio, 2, 1e-12);
  EXPECT_NEAR(median_ratio({&s, 1}).base, 3, 1e-12);
  EXPECT_NEAR(median_ratio({&s, 1}).other, 6, 1e-12);
  // Levels of strata do not matter.
  const std::vector<Stratum> levels = {spaced(1, 1.1, 5), spaced(50, 1.1, 5), spaced(3, 1.1, 5)};
  const MedianRatio m = median_ratio(levels);
  EXPECT_NEAR(m.ratio, 1.1, 1e-9);
  EXPECT_LT(m.ci95.low, m.ratio);
  EXPECT_GT(m.ci95.high, m.ratio);
  EXPECT_GT(m.ci95.low, 1.08);
  EXPECT_LT(m.ci95.high, 1.12);
  EXPECT_EQ(median_ratio(levels).ci95.low, m.ci95.low);  // the same every time
  EXPECT_NEAR(m.other / m.base, m.ratio, 1e-12);
  EXPECT_NEAR(m.base, std::cbrt(150.0), 0.01);  // of 1, 50 and 3
  const std::vector<Stratum> pairs = {{{1}, {1.1}}, {{7}, {7.7}}, {{3}, {3.3}}};
  EXPECT_NEAR(median_ratio(pairs).ratio, 1.1, 1e-9);
  EXPECT_THROW(median_ratio({}), Error);
  const Stratum zero = {{0}, {1}};
  EXPECT_THROW(median_ratio({&zero, 1}), Error);
}

TEST(HodgesLehmann, HoldsTheShiftsThatTheRankTestDoesNotReject) {
  std::mt19937_64 engine(11);
  const auto draw = [&] { return double(engine() >> 11U) * 0x1p-53; };
  for (const auto& [a, b] : {std::pair{4, 4}, {5, 9}, {10, 10}, {30, 17}, {80, 90}}) {
    Stratum values;
    for (int i = 0; i < a; ++i) values.base.push_back(draw());
    for (int i = 0; i < b; ++i) values.other.push_back(0.3 + draw());
    const Shift s = hodges_lehmann(values, 0.95);
    ASSERT_TRUE(s.interval) << a << " " << b;
    EXPECT_LE(s.interval->low, s.shift);
    EXPECT_LE(s.shift, s.interval->high);
    const auto p_if_shifted = [&](double shift) {
      Stratum shifted = values;
      for (double& x : shifted.other) x -= shift;
      return mann_whitney({&shifted, 1});
    };
    constexpr double kLittle = 1e-9;
    // The normal approximation of many values has a continuity correction there and none here.
    const bool exact = a + b <= int(kExactRanks);
    const double inside = exact ? 0.025 : 0.024, outside = exact ? 0.025 : 0.026;
    EXPECT_LE(p_if_shifted(s.interval->low - kLittle).p_greater, outside) << a << " " << b;
    EXPECT_GT(p_if_shifted(s.interval->low + kLittle).p_greater, inside) << a << " " << b;
    EXPECT_LE(p_if_shifted(s.interval->high + kLittle).p_less, outside) << a << " " << b;
    EXPECT_GT(p_if_shifted(s.interval->high - kLittle).p_less, inside) << a << " " << b;
  }
  // Three and three values have twenty assignments: one of them is no 2.5%.
  EXPECT_FALSE(hodges_lehmann({{1, 2, 3}, {4, 5, 6}}, 0.95).interval);
  const Shift four = hodges_lehmann({{0, 1, 2, 4}, {10, 20, 30, 50}}, 0.95);
  EXPECT_EQ(four.interval->low, 6);
  EXPECT_EQ(four.interval->high, 50);
  EXPECT_EQ(hodges_lehmann({{1, 1}, {3, 3}}, 0.95).shift, 2);
}

}  // namespace
}  // namespace triforce
