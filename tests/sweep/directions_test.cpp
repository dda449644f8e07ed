// Verdicts on made results whose truth is known.
#include "sweep/directions.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/sample_result.h"
#include "statistics/by_prompt.h"

namespace triforce {
namespace {

// What a made case has of one prompt, in each of two repetitions.
struct Prompt {
  std::int64_t accepted = 0, rejected = 0;
  double ms = 1, baseline_ms = 1, pass_ms = 1;
};

Sample sample_of(int prompt, int repetition, double ms) {
  Sample s;
  s.prompt = prompt;
  s.repetition = repetition;
  s.tokens = 10;
  s.decode_ms = 10 * ms;
  s.tokens_sha256 = fmt::format("{} {}", prompt, repetition);
  return s;
}

// A row with the baseline and the method "triforce".
SweepRow row_of(std::int64_t number, const std::vector<Prompt>& prompts, int repetitions = 2) {
  CaseResult ar, triforce;
  ar.name = ar.method = "ar";
  ar.lossless.mode = LosslessMode::kBaseline;
  triforce.name = triforce.method = "triforce";
  LevelResult outer;
  outer.name = "outer";
  PassTraffic pass;
  pass.pass = "full";
  for (int p = 0; p < std::ssize(prompts); ++p) {
    const Prompt& prompt = prompts[static_cast<std::size_t>(p)];
    for (int r = 0; r < repetitions; ++r) {
      ar.timing.samples.push_back(sample_of(p, r, prompt.baseline_ms));
      Sample& s = triforce.timing.samples.emplace_back(sample_of(p, r, prompt.ms));
      LevelCounters level;
      level.name = "outer";
      level.accepted = prompt.accepted;
      level.rejected = prompt.rejected;
      s.levels = {level};
      outer.merge(level);
    }
    pass.ms_per_pass_of_prompt.push_back(prompt.pass_ms);
  }
  Sample warm = sample_of(0, 0, 1000);
  warm.warmup = true;
  triforce.timing.samples.push_back(warm);
  triforce.acceptance = {outer};
  pass.ms_per_pass = prompts.front().pass_ms;
  triforce.traffic = {pass};
  triforce.timing.ms_per_token.geometric_mean = prompts.front().ms;
  triforce.speedup = Speedup{};
  triforce.speedup->baseline = "ar";
  triforce.speedup->value = prompts.front().baseline_ms / prompts.front().ms;
  ar.data.n_prompts = triforce.data.n_prompts = std::ssize(prompts);
  SweepRow row;
  row.number = number;
  row.result.cases = {ar, triforce};
  return row;
}

SweepDirection direction(CaseMetric metric, double threshold,
                         DirectionRelation relation = DirectionRelation::kGreater) {
  SweepDirection d;
  d.text = "one above the other";
  d.metric = metric;
  d.relation = relation;
  d.threshold = threshold;
  d.side = {1, "triforce", "budget 512", {}};
  d.than = {2, "triforce", "budget 64", {}};
  return d;
}

SweepDirection judged(SweepDirection d, const std::vector<SweepRow>& rows) {
  judge_direction(d, rows);
  return d;
}

using V = DirectionVerdict;

// Prompts that differ much and a change that is the same in all.
const std::vector<Prompt> kHigh = {{95, 5}, {75, 25}, {55, 45}, {36, 64}};
const std::vector<Prompt> kLow = {{90, 10}, {70, 30}, {49, 51}, {30, 70}};

TEST(Directions, RatesArePairedByPrompt) {
  const std::vector<SweepRow> rows = {row_of(1, kHigh), row_of(2, kLow)};
  const SweepDirection d = judged(direction(CaseMetric::kAcceptance, 0), rows);
  EXPECT_EQ(d.verdict, V::kHolds) << d.reason.value_or("");
  EXPECT_FALSE(d.reason.has_value());
  EXPECT_NEAR(*d.side.value, 261.0 / 400, 1e-12);
  EXPECT_NEAR(*d.than.value, 239.0 / 400, 1e-12);
  EXPECT_NEAR(*d.effect, 22.0 / 400, 1e-12);
  EXPECT_GT(*d.ci95_low, 0);
  EXPECT_EQ(d.ci95_over, IntervalOver::kPrompts);
  // Not paired, two such means of four prompts say nothing of each other.
  const double spread = 0.253, error = spread * std::sqrt(2.0 / 4);
  EXPECT_LT(*d.effect - student_t95(6) * error, 0);
  // Nor are they paired where the prompts are not the same: the first with the last.
  std::vector<Prompt> reversed(kLow.rbegin(), kLow.rend());
  const SweepDirection wrong =
      judged(direction(CaseMetric::kAcceptance, 0), {row_of(1, kHigh), row_of(2, reversed)});
  EXPECT_EQ(wrong.verdict, V::kUndecided);
  EXPECT_EQ(wrong.reason, "the interval holds 0");
}

// Recoveries that differ by prompt more than by case, weighed by their verifications.
TEST(Directions, RecoveriesArePairedByPrompt) {
  std::vector<SweepRow> rows = {row_of(1, kHigh), row_of(2, kLow)};
  for (SweepRow& row : rows) {
    CaseResult& c = row.result.cases[1];
    c.recovery.emplace();
    for (int p = 0; p < 4; ++p) {
      const double mean = 0.9 - 0.2 * p - (row.number == 1 ? 0.0 : 0.05 + 0.002 * p);
      c.recovery->by_prompt.push_back({p, 5000, mean});
    }
    c.recovery->mean = row.number == 1 ? 0.6 : 0.547;
  }
  const SweepDirection d = judged(direction(CaseMetric::kRecovery, 0), rows);
  EXPECT_EQ(d.verdict, V::kHolds);
  EXPECT_NEAR(*d.effect, 0.053, 1e-9);
  EXPECT_GT(*d.ci95_low, 0.03);
  EXPECT_EQ(judged(direction(CaseMetric::kRecovery, 0.2), rows).verdict, V::kReversed);
  rows[1].result.cases[1].recovery.reset();
  EXPECT_EQ(judged(direction(CaseMetric::kRecovery, 0), rows).reason,
            "case 2, triforce: it has no recovery");
}

// Tokens before the first that is not the baseline's of the same run.
TEST(Directions, AgreementWithTheBaselineIsOfItsOwnRun) {
  std::vector<SweepRow> rows = {row_of(1, kHigh), row_of(2, kLow)};
  for (SweepRow& row : rows) {
    const Token base = static_cast<Token>(1000 * row.number);
    for (int p = 0; p < 4; ++p) {
      std::vector<Token> expected, got;
      const int equal = row.number == 1 ? 60 + p : 10 + p;
      for (int i = 0; i < 100; ++i) {
        expected.push_back(base + p + i);
        got.push_back(base + p + i + (i == equal ? 1 : 0));
      }
      row.result.cases[0].output.push_back({p, 0, expected, {}, "", {}, ""});
      row.result.cases[1].output.push_back({p, 0, got, {}, "", {}, ""});
    }
    row.result.cases[1].lossless.equal_tokens = row.number == 1 ? 0.615 : 0.115;
  }
  const SweepDirection d = judged(direction(CaseMetric::kAsAr, 0), rows);
  EXPECT_EQ(d.verdict, V::kHolds);
  EXPECT_NEAR(*d.effect, 0.5, 1e-9);
  EXPECT_NEAR(*d.side.value, 0.615, 1e-9);
}

TEST(Directions, EachVerdictAndBothRelations) {
  const std::vector<SweepRow> rows = {row_of(1, kHigh), row_of(2, kLow)};
  const std::vector<SweepRow> swapped = {row_of(1, kLow), row_of(2, kHigh)};
  const std::vector<SweepRow> equal = {row_of(1, kLow), row_of(2, kLow)};
  constexpr auto kLess = DirectionRelation::kLess;
  const auto verdict = [](const std::vector<SweepRow>& r, double threshold,
                          DirectionRelation relation = DirectionRelation::kGreater) {
    return judged(direction(CaseMetric::kAcceptance, threshold, relation), r).verdict;
  };
  EXPECT_EQ(verdict(rows, 0), V::kHolds);
  EXPECT_EQ(verdict(swapped, 0), V::kReversed);
  EXPECT_EQ(verdict(equal, 0), V::kUndecided);
  EXPECT_EQ(verdict(rows, 0, kLess), V::kReversed);
  EXPECT_EQ(verdict(swapped, 0, kLess), V::kHolds);
  // "lower by less than .2", "higher by more than .2"
  EXPECT_EQ(verdict(swapped, -0.2), V::kHolds);
  EXPECT_EQ(verdict(rows, 0.2), V::kReversed);
  EXPECT_EQ(verdict(rows, 0.2, kLess), V::kHolds);
}

TEST(Directions, TimesAndSpeedupsAreRatios) {
  // Twice as long on every prompt, whose own times differ a hundredfold.
  std::vector<Prompt> slow(4), fast(4);
  const double base[] = {1, 10, 30, 100};
  for (std::size_t p = 0; p < 4; ++p) {
    fast[p].ms = base[p];
    slow[p].ms = base[p] * (2 + 0.02 * static_cast<double>(p));
    fast[p].baseline_ms = slow[p].baseline_ms = 5 * base[p];
    fast[p].pass_ms = base[p];
    slow[p].pass_ms = 1.5 * base[p] * (1 + 0.01 * static_cast<double>(p));
  }
  const std::vector<SweepRow> rows = {row_of(1, slow), row_of(2, fast)};
  const SweepDirection d = judged(direction(CaseMetric::kMsPerToken, 1), rows);
  EXPECT_EQ(d.verdict, V::kHolds);
  EXPECT_NEAR(*d.effect, std::pow(2 * 2.02 * 2.04 * 2.06, 0.25), 1e-12);
  EXPECT_LT(*d.ci95_high, 2.2);
  EXPECT_EQ(judged(direction(CaseMetric::kMsPerToken, 3, DirectionRelation::kLess), rows).verdict,
            V::kHolds);
  EXPECT_EQ(judged(direction(CaseMetric::kMsPerToken, 3), rows).verdict, V::kReversed);
  EXPECT_EQ(judged(direction(CaseMetric::kMsPerToken, 2.03), rows).verdict, V::kUndecided);
  const SweepDirection s = judged(direction(CaseMetric::kSpeedup, 1), rows);
  EXPECT_EQ(s.verdict, V::kReversed);
  EXPECT_NEAR(*s.effect, 1 / *d.effect, 1e-12);
  const SweepDirection pass = judged(direction(ms_of(kFullPass), 1), rows);
  EXPECT_EQ(pass.verdict, V::kHolds);
  EXPECT_NEAR(*pass.effect, 1.5 * std::pow(1.01 * 1.02 * 1.03, 0.25), 1e-12);
}

TEST(Directions, SpeedupsAreOverTheBaselineOfTheirOwnRun) {
  std::vector<Prompt> a(4), b(4);
  for (std::size_t p = 0; p < 4; ++p) {
    a[p].ms = 1 + static_cast<double>(p);
    b[p].ms = 2 * a[p].ms;
    a[p].baseline_ms = 3 * a[p].ms * (1 + 0.01 * static_cast<double>(p));
    b[p].baseline_ms = 3 * b[p].ms;
  }
  const SweepDirection d = judged(direction(CaseMetric::kSpeedup, 1), {row_of(1, a), row_of(2, b)});
  EXPECT_NEAR(*d.effect, std::pow(1.01 * 1.02 * 1.03, 0.25), 1e-12);
}

TEST(Directions, WhatWasNotMeasured) {
  const auto reason = [](const SweepDirection& d, const std::vector<SweepRow>& rows) {
    const SweepDirection done = judged(d, rows);
    EXPECT_EQ(done.verdict, V::kNotMeasured);
    EXPECT_FALSE(done.effect || done.ci95_low || done.ci95_high);
    return done.reason.value_or("");
  };
  const SweepDirection acceptance = direction(CaseMetric::kAcceptance, 0);
  const std::vector<SweepRow> good = {row_of(1, kHigh), row_of(2, kLow)};
  std::vector<SweepRow> rows = good;
  rows[1].result.cases[1].status = CaseStatus::kOom;
  rows[1].result.cases[1].status_reason = "too much";
  EXPECT_EQ(reason(acceptance, rows), "case 2, triforce: status oom: too much");
  EXPECT_EQ(reason(acceptance, {good[0]}), "case 2, triforce: it is of another shard");
  rows = good;
  rows[0].result.cases.pop_back();
  EXPECT_EQ(reason(acceptance, rows), "case 1, triforce: it was not measured");
  rows = good;
  rows[0].result.cases[1].params = {{"synthetic_acceptance", std::string("outer=.9,inner=.4")}};
  EXPECT_EQ(reason(acceptance, rows), "case 1, triforce: its acceptance was given, not measured");
  EXPECT_NE(judged(direction(CaseMetric::kSpeedup, 1), rows).verdict, V::kNotMeasured);
  EXPECT_EQ(reason(direction(CaseMetric::kInnerAcceptance, 0), good),
            "case 1, triforce: it has no inner-acceptance");
  SweepDirection nowhere = acceptance;
  nowhere.than.number.reset();
  nowhere.reason = "no case has budget 3";
  EXPECT_EQ(reason(nowhere, good), "no case has budget 3");
}

TEST(Directions, OnePromptHasTheIntervalOfItsRepetitions) {
  std::vector<SweepRow> rows = {row_of(1, {{95, 5, 1.0}}, 3), row_of(2, {{50, 50, 2.0}}, 3)};
  const double noise[] = {1, 1.01, 1.02};
  for (std::size_t i = 0; i < 3; ++i)
    rows[0].result.cases[1].timing.samples[i].decode_ms *= noise[i];
  const SweepDirection d = judged(direction(CaseMetric::kMsPerToken, 1), rows);
  EXPECT_EQ(d.verdict, V::kReversed);
  EXPECT_EQ(d.ci95_over, IntervalOver::kRepetitions);
  EXPECT_EQ(judged(direction(CaseMetric::kAcceptance, 0), rows).ci95_over,
            IntervalOver::kRepetitions);
  const SweepDirection one = judged(direction(CaseMetric::kAcceptance, 0),
                                    {row_of(1, {{95, 5}}, 1), row_of(2, {{50, 50}}, 1)});
  EXPECT_EQ(one.verdict, V::kUndecided);
  EXPECT_EQ(one.reason, "one prompt has no interval (--prompts)");
  EXPECT_NEAR(*one.effect, 0.45, 1e-12);
}

// How often an interval that should hold the truth with 95% does, where prompts differ far more
// than the change; and that judging without pairs would find none of these changes.
TEST(Directions, TheIntervalHoldsTheTruth) {
  std::uint64_t state = 20260101;
  const auto uniform = [&state] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (static_cast<double>(state >> 11U) + 0.5) * 0x1p-53;
  };
  constexpr int kTimes = 2000;
  constexpr double kTruth = 1.1;
  int held = 0, found = 0;
  for (int i = 0; i < kTimes; ++i) {
    std::vector<Prompt> a(8), b(8);
    for (std::size_t p = 0; p < a.size(); ++p) {
      const double prompt = std::exp(4 * uniform());
      const auto noise = [&] { return std::exp(0.1 * (uniform() + uniform() - 1)); };
      b[p].ms = prompt * noise();
      a[p].ms = kTruth * prompt * noise();
    }
    const SweepDirection d =
        judged(direction(CaseMetric::kMsPerToken, 1), {row_of(1, a), row_of(2, b)});
    held += *d.ci95_low <= kTruth && kTruth <= *d.ci95_high ? 1 : 0;
    found += d.verdict == V::kHolds ? 1 : 0;
  }
  std::printf("held %d, found %d of %d\n", held, found, kTimes);
  const double error = std::sqrt(0.05 * 0.95 * kTimes);
  EXPECT_NEAR(held, 0.95 * kTimes, 4 * error);
  EXPECT_GT(found, 0.95 * kTimes);
}

}  // namespace
}  // namespace triforce
