// How often differences are found that are there, and that are not, over simulated measurements.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>

#include "compare/metrics.h"
#include "statistics/statistics.h"

namespace triforce {
namespace {

constexpr int kTrials = 400, kFewResamples = 1000;

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return (double(engine_() >> 11U) + 0.5) * 0x1p-53; }
  double normal() {
    const double u = uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * uniform());
  }
  // Log-normal, and every thirtieth or so a third longer.
  double time(double deviation) {
    const double x = std::exp(deviation * normal());
    return uniform() < 0.03 ? 1.3 * x : x;
  }

 private:
  std::mt19937_64 engine_;
};

LatencySamples one_group(Draws& draws, int n, double deviation, double effect) {
  LatencySamples samples;
  Stratum& s = samples.groups.emplace_back();
  for (int i = 0; i < n; ++i) {
    s.base.push_back(draws.time(deviation));
    s.other.push_back(effect * draws.time(deviation));
  }
  return samples;
}

// Rules that were found to be wrong, beside the one that is used.
struct Found {
  int regressed = 0, same = 0, by_median = 0, by_rank_at_5_percent = 0;
};

Found find(int n, double deviation, double effect) {
  Found found;
  for (int trial = 0; trial < kTrials; ++trial) {
    Draws draws(std::uint64_t(trial) + 1000 * std::uint64_t(n) +
                std::uint64_t(1e9 * deviation + 1e7 * effect));
    const std::vector<LatencySamples> cases = {one_group(draws, n, deviation, effect)};
    const MetricComparison m = compare_latency(cases, {}, kFewResamples).at(0);
    found.regressed += m.outcome == Outcome::kRegressed ? 1 : 0;
    found.same += m.verdict == Verdict::kSame ? 1 : 0;
    found.by_median += *m.change > 1.03 ? 1 : 0;
    found.by_rank_at_5_percent += mann_whitney(cases[0].groups).p_greater < 0.05 ? 1 : 0;
  }
  return found;
}

struct Setting {
  double deviation;
  int n;
  double of_5_percent, of_10_percent;  // detected of 400 by an independent simulation of the rule
};
constexpr Setting kSettings[] = {{0.005, 15, 0.93, 0.95},
                                 {0.01, 15, 0.92, 0.92},
                                 {0.01, 30, 1.00, 1.00},
                                 {0.02, 15, 0.43, 0.92},
                                 {0.02, 30, 0.82, 1.00}};

// Two shares of 400 trials each of one probability differ by more in one of some 10,000 cases.
double four_errors(double share) {
  const double p = std::clamp(share, 0.01, 0.99);
  return 4 * std::sqrt(2 * p * (1 - p) / kTrials);
}

TEST(LatencyRule, FindsNothingWhereNothingIs) {
  for (const Setting& s : kSettings) {
    for (const double effect : {1.0, 1.02}) {
      const Found f = find(s.n, s.deviation, effect);
      std::printf("noise %.1f%%, n %d, %+.0f%%: %d of %d, same %d\n", 100 * s.deviation, s.n,
                  100 * (effect - 1), f.regressed, kTrials, f.same);
      EXPECT_EQ(f.regressed, 0);
      if (effect == 1.02) {  // rules that are wrong must be seen to be
        EXPECT_GT(f.by_rank_at_5_percent, kTrials / 2);
      }
      if (effect == 1.02 && s.deviation == 0.02) {
        EXPECT_GT(f.by_median, kTrials / 50);
      }
      // And it is said to be the same where samples suffice: thirty at a noise up to 2%.
      if (effect == 1.0 && s.n == 30) {
        EXPECT_GT(f.same, kTrials * 9 / 10);
      }
    }
  }
}

TEST(LatencyRule, FindsWhatIsThere) {
  for (const Setting& s : kSettings) {
    for (const auto& [effect, expected] :
         {std::pair{1.05, s.of_5_percent}, std::pair{1.10, s.of_10_percent}}) {
      const double share = double(find(s.n, s.deviation, effect).regressed) / kTrials;
      std::printf("noise %.1f%%, n %d, %+.0f%%: %.3f, expected %.2f\n", 100 * s.deviation, s.n,
                  100 * (effect - 1), share, expected);
      EXPECT_NEAR(share, expected, four_errors(expected));
    }
  }
}

// Prompts that differ by a factor of 4 and seeds whose work differs take no power, and repetitions
// of four prompts are as good as of one.
TEST(LatencyRule, PromptsAndSeedsAreNoNoise) {
  int found = 0, wrong = 0;
  for (int trial = 0; trial < 100; ++trial) {
    for (const double effect : {1.0, 1.05}) {
      Draws draws(77'000 + std::uint64_t(trial));
      LatencySamples samples;
      for (int group = 0; group < 4; ++group) {
        Stratum s = one_group(draws, 8, 0.01, effect).groups[0];
        for (auto* side : {&s.base, &s.other})
          for (double& x : *side) x *= std::pow(4.0, group / 3.0);
        samples.groups.push_back(std::move(s));
      }
      const MetricComparison m = compare_latency({samples}, {}, kFewResamples).at(0);
      EXPECT_LT(*m.noise, 0.03);
      (effect > 1 ? found : wrong) += m.outcome == Outcome::kRegressed ? 1 : 0;
    }
  }
  EXPECT_GE(found, 95);
  EXPECT_EQ(wrong, 0);
}

// ---- Runs of both builds that took turns

constexpr int kTurns = 10, kSamplesOfTurn = 3;

// So many runs a side, each as long as a run of its own moment is: `drift` is the deviation of
// that.
LatencySamples turns(Draws& draws, int runs, int n, double deviation, double drift, double effect) {
  LatencySamples samples;
  Stratum& all = samples.groups.emplace_back();
  for (int run = 0; run < runs; ++run) {
    for (const bool is_base : {true, false}) {
      const double moment = std::exp(drift * draws.normal()) * (is_base ? 1 : effect);
      std::vector<double>& logs = (is_base ? samples.runs_base : samples.runs_other).emplace_back();
      for (int i = 0; i < n; ++i) {
        const double x = moment * draws.time(deviation);
        (is_base ? all.base : all.other).push_back(x);
        logs.push_back(std::log(x));
      }
    }
  }
  return samples;
}

struct FoundInTurns {
  int regressed = 0, same = 0;
};

// By the samples alone, where runs of one build differ by the threshold at most: found to be wrong.
bool regressed_if_pooled(LatencySamples samples) {
  const auto agree = [](const std::vector<std::vector<double>>& of_side) {
    std::vector<double> medians;
    for (const std::vector<double>& logs : of_side) medians.push_back(median(logs));
    const auto [low, high] = std::minmax_element(medians.begin(), medians.end());
    return *high - *low < std::log(1.03);
  };
  if (!agree(samples.runs_base) || !agree(samples.runs_other)) return false;
  samples.runs_base.clear();
  samples.runs_other.clear();
  return compare_latency({samples}, {}, kFewResamples).at(0).outcome == Outcome::kRegressed;
}

FoundInTurns find_in_turns(int runs, int n, double deviation, double drift, double effect) {
  FoundInTurns found;
  for (int trial = 0; trial < kTrials; ++trial) {
    Draws draws(std::uint64_t(trial) + 7000 * std::uint64_t(runs) +
                std::uint64_t(1e9 * deviation + 1e8 * drift + 1e7 * effect));
    const LatencySamples samples = turns(draws, runs, n, deviation, drift, effect);
    const MetricComparison m = compare_latency({samples}, {}, kFewResamples).at(0);
    found.regressed += m.outcome == Outcome::kRegressed ? 1 : 0;
    found.same += m.verdict == Verdict::kSame ? 1 : 0;
  }
  return found;
}

TEST(LatencyInTurns, DriftBetweenRunsIsNoRegression) {
  for (const double drift : {0.0, 0.03, 0.10}) {
    for (const double effect : {1.0, 1.02}) {
      const FoundInTurns f = find_in_turns(kTurns, kSamplesOfTurn, 0.01, drift, effect);
      std::printf("drift %.0f%%, %+.0f%%: %d of %d, same %d\n", 100 * drift, 100 * (effect - 1),
                  f.regressed, kTrials, f.same);
      EXPECT_EQ(f.regressed, 0);
      if (drift == 0 && effect == 1) {
        EXPECT_GT(f.same, kTrials * 9 / 10);
      }
    }
  }
}

// Samples of a run are not independent: two runs a side that agree by chance are no proof.
TEST(LatencyInTurns, SamplesOfFewRunsAreNoProof) {
  int wrong = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    Draws draws(900'000 + std::uint64_t(trial));
    const LatencySamples two = turns(draws, 2, 15, 0.01, 0.03, 1.0);
    EXPECT_NE(compare_latency({two}, {}, 1).at(0).outcome, Outcome::kRegressed);
    wrong += regressed_if_pooled(two) ? 1 : 0;
  }
  std::printf("two runs a side, drift 3%%: samples alone find %d of %d\n", wrong, kTrials);
  EXPECT_GT(wrong, kTrials / 100);
}

// As many samples as of one run find as much where nothing drifts.
TEST(LatencyInTurns, WithoutDriftNothingIsLost) {
  for (const Setting& s : kSettings) {
    if (s.n != kTurns * kSamplesOfTurn) continue;
    for (const auto& [effect, expected] :
         {std::pair{1.05, s.of_5_percent}, std::pair{1.10, s.of_10_percent}}) {
      const FoundInTurns f = find_in_turns(kTurns, kSamplesOfTurn, s.deviation, 0, effect);
      const double share = double(f.regressed) / kTrials;
      std::printf("noise %.1f%%, %d runs of %d, %+.0f%%: %.3f, of one run %.2f\n",
                  100 * s.deviation, kTurns, kSamplesOfTurn, 100 * (effect - 1), share, expected);
      EXPECT_GT(share, expected - four_errors(expected));
    }
  }
}

TEST(LatencyInTurns, WhatIsFarBeyondDriftIsFoundAndWhatIsWithinIsNeverPassed) {
  const FoundInTurns far = find_in_turns(kTurns, kSamplesOfTurn, 0.01, 0.03, 1.2),
                     within = find_in_turns(kTurns, kSamplesOfTurn, 0.01, 0.10, 1.05);
  std::printf("20%% at a drift of 3%%: %d of %d; 5%% at 10%%: %d, same %d\n", far.regressed,
              kTrials, within.regressed, within.same);
  EXPECT_GT(far.regressed, kTrials * 95 / 100);
  EXPECT_EQ(far.same, 0);
  EXPECT_LT(within.regressed + within.same, kTrials * 5 / 100);
}

TEST(LatencyRule, ManyCasesRaiseNoFalseAlarm) {
  Draws draws(5);
  std::vector<LatencySamples> cases;
  for (int i = 0; i < 100; ++i) cases.push_back(one_group(draws, 30, 0.01, i == 7 ? 1.1 : 1.0));
  const std::vector<MetricComparison> rows = compare_latency(cases, {}, kFewResamples);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(rows[std::size_t(i)].outcome == Outcome::kRegressed, i == 7) << i;
  }
}

// ---- Acceptance

// A prompt has a rate of its own and tokens that are accepted with it.
struct Shares {
  std::vector<SharePair> pairs;
};
Shares simulate(Draws& draws, int prompts, int tested, double less) {
  Shares out;
  for (int p = 0; p < prompts; ++p) {
    const double rate = 0.8 + 0.05 * draws.normal();
    SharePair pair;
    for (int i = 0; i < tested; ++i) {
      pair.base.part += draws.uniform() < rate ? 1 : 0;
      pair.other.part += draws.uniform() < rate - less ? 1 : 0;
    }
    pair.base.whole = pair.other.whole = tested;
    out.pairs.push_back(pair);
  }
  return out;
}

// The interval's ends hold as often as they say, and the number of tokens that is asked for passes
// nine in ten of the unchanged.
TEST(AcceptanceRule, EndsHoldAndTheNumberSuffices) {
  constexpr int kPrompts = 20, kMeasurements = 1000;
  constexpr double kThreshold = 0.03;
  const int tested = int(std::ceil(trials_to_tell(0.8, kThreshold) / kPrompts));
  for (const double less : {0.0, 0.03}) {
    int below = 0, above = 0, passed = 0, wrong = 0;
    for (int m = 0; m < kMeasurements; ++m) {
      Draws draws(500'000 + std::uint64_t(m));
      const Shares shares = simulate(draws, kPrompts, tested, less);
      const RateDifference d = *rate_difference(shares.pairs, 0.90);
      below += d.interval->high < -less ? 1 : 0;
      above += d.interval->low > -less ? 1 : 0;
      passed += d.interval->low > -kThreshold ? 1 : 0;
      const double naive = 1.645 * std::sqrt(0.16 / (kPrompts * tested));  // of one side alone
      wrong += d.other - d.base + naive < -less ? 1 : 0;
    }
    std::printf("less %.2f: below %d, above %d, passed %d, wrong rule %d\n", less, below, above,
                passed, wrong);
    const double error = std::sqrt(0.05 * 0.95 * kMeasurements);
    EXPECT_NEAR(below, 0.05 * kMeasurements, 4 * error);
    EXPECT_NEAR(above, 0.05 * kMeasurements, 4 * error);
    EXPECT_GT(wrong, 0.05 * kMeasurements + 4 * error);
    if (less == 0) {
      EXPECT_NEAR(passed, 0.90 * kMeasurements, 4 * std::sqrt(0.09 * kMeasurements));
    } else {
      EXPECT_NEAR(passed, 0.05 * kMeasurements, 4 * error);
    }
  }
}

}  // namespace
}  // namespace triforce
