#include "measure/measure.h"

#include <gtest/gtest.h>

#include <cmath>

#include "measure/level_intervals.h"
#include "measure/made_up_runs.h"
#include "measure/measure_parts.h"
#include "measure/measure_state.h"
#include "report/sample_result.h"

namespace triforce {
namespace {

TEST(Digest, OfTokensIsOfLittleEndianWords) {
  // printf '\x01\x00\x00\x00\x00\x01\x00\x00' | sha256sum
  const Token tokens[] = {1, 256};
  EXPECT_EQ(tokens_sha256(tokens),
            "242045e2f1bb37769b514f182fd91b3d215324cb57f187cced1e9c62921dbac3");
}

TEST(RunId, NamesTheStart) {
  const ResultContext c = sample_context();
  const std::string id = make_run_id(c, "1");
  EXPECT_EQ(id.substr(0, 17), "20260131T120000Z-");
  EXPECT_EQ(id.size(), 25U);
  EXPECT_NE(make_run_id(c, "2"), id);
}

TEST(Order, AlternatesSoThatDriftHitsAllAlike) {
  using Order = std::vector<std::size_t>;
  EXPECT_EQ(interleaved_order(2, 0), (Order{0, 1}));
  EXPECT_EQ(interleaved_order(2, 1), (Order{1, 0}));
  EXPECT_EQ(interleaved_order(3, 2), (Order{0, 1, 2}));
  EXPECT_EQ(interleaved_order(3, 3), (Order{2, 1, 0}));
}

TEST(Difference, FindsTheFirst) {
  using T = std::vector<Token>;
  EXPECT_FALSE(first_difference(T{1, 2, 3}, T{1, 2, 3}).has_value());
  EXPECT_FALSE(first_difference(T{}, T{}).has_value());
  EXPECT_EQ(first_difference(T{1, 2, 3}, T{1, 9, 3}), 1);
  EXPECT_EQ(first_difference(T{1, 2}, T{1, 2, 3}), 2);
  EXPECT_EQ(first_difference(T{1, 2, 3}, T{1}), 1);
}

TEST(TopOf, FallsAndPrefersLowerIds) {
  const std::vector<float> probs = {0.125F, 0, 0.25F, 0.125F, 0.5F, 0, 0.0F};
  std::vector<Token> tokens = {9};
  std::vector<double> values = {9};
  top_of(probs, 3, tokens, values);
  EXPECT_EQ(tokens, (std::vector<Token>{4, 2, 0}));
  EXPECT_EQ(values, (std::vector<double>{0.5, 0.25, 0.125}));
  top_of(probs, 64, tokens, values);
  EXPECT_EQ(tokens, (std::vector<Token>{4, 2, 0, 3}));
  top_of({}, 64, tokens, values);
  EXPECT_TRUE(tokens.empty() && values.empty());
}

TEST(LosslessModeOf, DependsOnWhatTokensMean) {
  SpeculationOptions o;
  EXPECT_EQ(lossless_mode(o, spec_of(kBaselineMethod)), LosslessMode::kBaseline);
  EXPECT_EQ(lossless_mode(o, spec_of(Method::kTriForce)), LosslessMode::kDistribution);
  o.sampling.temperature = 0;
  EXPECT_EQ(lossless_mode(o, spec_of(Method::kTriForce)), LosslessMode::kTokens);
  o.sampling.temperature = 1;
  o.acceptance = Acceptance::kCoupled;
  EXPECT_EQ(lossless_mode(o, spec_of(Method::kDraft)), LosslessMode::kTokens);
  o.synthetic = SyntheticAcceptance{{0.9}, 0.5};
  EXPECT_EQ(lossless_mode(o, spec_of(Method::kDraft)), LosslessMode::kNone);
}

TEST(ExactRule, OnlyTheInnerLevelCanBePublished) {
  SpeculationOptions o;
  EXPECT_TRUE(exact_rule(o, spec_of(Method::kTriForce)));
  o.inner_correction = Correction::kTarget;
  EXPECT_FALSE(exact_rule(o, spec_of(Method::kTriForce)));
  EXPECT_TRUE(exact_rule(o, spec_of(Method::kRetrieval)));
}

TEST(CompareStreams, NamesTheFirstDivergence) {
  const std::vector<MeasuredRun> baseline = {warmup_of(1), run_of(0, 0, 1, {5, 6, 7}),
                                             run_of(0, 1, 1, {5, 6, 8}), run_of(1, 0, 1, {1, 2})};
  std::vector<MeasuredRun> runs = baseline;
  Lossless same = compare_streams(&baseline, runs, LosslessMode::kTokens);
  EXPECT_EQ(same.equal_to_baseline, true);
  EXPECT_EQ(same.compared, 3);
  EXPECT_FALSE(same.first_divergence.has_value());

  runs[2].metrics.tokens = {5, 9, 8};
  runs[3].metrics.tokens = {1};
  const Lossless other = compare_streams(&baseline, runs, LosslessMode::kTokens);
  EXPECT_EQ(other.equal_to_baseline, false);
  ASSERT_TRUE(other.first_divergence.has_value());
  EXPECT_EQ(other.first_divergence->prompt, 0);
  EXPECT_EQ(other.first_divergence->repetition, 1);
  EXPECT_EQ(other.first_divergence->position, 1);
  EXPECT_EQ(other.first_divergence->expected, 6);
  EXPECT_EQ(other.first_divergence->found, 9);

  runs[2] = baseline[2];
  const Lossless shorter = compare_streams(&baseline, runs, LosslessMode::kTokens);
  EXPECT_EQ(shorter.first_divergence->expected, 2);
  EXPECT_FALSE(shorter.first_divergence->found.has_value());
}

TEST(CompareStreams, SaysNothingWhereNothingCanBeCompared) {
  const std::vector<MeasuredRun> runs = {run_of(0, 0, 1, {1}), run_of(0, 1, 1, {2})};
  EXPECT_FALSE(compare_streams(nullptr, runs, LosslessMode::kTokens).equal_to_baseline);
  EXPECT_FALSE(compare_streams(&runs, runs, LosslessMode::kDistribution).equal_to_baseline);
  const std::vector<MeasuredRun> warm = {warmup_of(1)};
  EXPECT_FALSE(compare_streams(&warm, runs, LosslessMode::kTokens).equal_to_baseline);
}

TEST(Timing, LeavesWarmUpsOutButKeepsThem) {
  const std::vector<MeasuredRun> runs = {warmup_of(100), run_of(0, 0, 2), run_of(0, 1, 4)};
  const Timing t = make_timing(runs, {}, [](const RunMetrics&) { return 1000.0; });
  EXPECT_EQ(t.ms_per_token.n, 2);
  EXPECT_DOUBLE_EQ(*t.ms_per_token.median, 3);
  EXPECT_DOUBLE_EQ(*t.ms_per_token.geometric_mean, std::sqrt(8.0));
  EXPECT_DOUBLE_EQ(*t.tokens_per_s, 1000.0 / std::sqrt(8.0));
  EXPECT_FALSE(t.preparation_ms || t.end_to_end_ms);
  EXPECT_DOUBLE_EQ(*t.noise_pct, 100 * std::sqrt(2.0) / 3);
  ASSERT_EQ(t.samples.size(), 3U);
  EXPECT_TRUE(t.samples[0].warmup);
  EXPECT_EQ(t.samples[2].seed, 43U);
  EXPECT_DOUBLE_EQ(t.samples[2].ms_per_token(), 4);
}

TEST(Timing, NoiseIsPerByteSoThatMoreWorkIsNoNoise) {
  const std::vector<MeasuredRun> runs = {run_of(0, 0, 2), run_of(0, 1, 4)};
  const Timing t = make_timing(runs, {}, [](const RunMetrics& m) { return m.decode_ms * 7; });
  EXPECT_DOUBLE_EQ(*t.noise_pct, 0);
}

TEST(SpeedupOf, PairsPromptAndRepetition) {
  std::vector<MeasuredRun> base, runs;
  for (int p = 0; p < 2; ++p) {
    for (int r = 0; r < 4; ++r) {
      const double drift = 1 + 0.5 * r + p;
      base.push_back(run_of(p, r, 6 * drift));
      runs.push_back(run_of(p, 3 - r, 2 * (1 + 0.5 * (3 - r) + p)));  // another order
    }
  }
  const auto s = make_speedup({base, {}}, {runs, {}});
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->baseline, "ar");
  EXPECT_NEAR(*s->value, 3, 1e-12);
  EXPECT_NEAR(*s->ci95_low, 3, 1e-12);  // of pairs, in which drift cancels
  EXPECT_NEAR(*s->ci95_high, 3, 1e-12);
  EXPECT_EQ(s->ci95_over, IntervalOver::kPrompts);
  EXPECT_FALSE(s->end_to_end || s->break_even_tokens);
  // Repetitions that only one of them finished do not count: here one prompt is left, then one
  // pair.
  base.resize(4);
  const auto half = make_speedup({base, {}}, {runs, {}});
  EXPECT_NEAR(*half->value, 3, 1e-12);
  EXPECT_EQ(half->ci95_over, IntervalOver::kRepetitions);
  base.resize(1);
  const auto one = make_speedup({base, {}}, {runs, {}});
  EXPECT_NEAR(*one->value, 3, 1e-12);
  EXPECT_FALSE(one->ci95_low || one->ci95_over);
  EXPECT_FALSE(make_speedup({}, {runs, {}}).has_value());
}

TEST(WholeGenerations, TakeTheCachesThatTheMethodUses) {
  const std::vector<PrefillMetrics> prefills = {{{{1000, 50, 20, 7, 8}}, false}};
  const auto of = [&](Method m) { return preparation_ms(spec_of(m), prefills).at(0); };
  EXPECT_DOUBLE_EQ(of(Method::kAutoregressive), 1000);
  EXPECT_DOUBLE_EQ(of(Method::kRetrieval), 1050);
  EXPECT_DOUBLE_EQ(of(Method::kStreaming), 1020);
  EXPECT_DOUBLE_EQ(of(Method::kQuantised), 1007);
  EXPECT_DOUBLE_EQ(of(Method::kDraft), 1008);
  EXPECT_DOUBLE_EQ(of(Method::kTriForce), 1058);
}

TEST(WholeGenerations, BreakEvenWhereTheExtraPreparationIsGainedBack) {
  // 10 tokens: 6 ms a token against 2, after 100 ms against 141 of preparation.
  const std::vector<MeasuredRun> base = {run_of(0, 0, 6)}, runs = {run_of(0, 0, 2)};
  const auto s = make_speedup({base, {100}}, {runs, {141}});
  EXPECT_DOUBLE_EQ(*s->end_to_end, 160.0 / 161);
  EXPECT_FALSE(s->end_to_end_ci95_low.has_value());
  EXPECT_EQ(s->break_even_tokens, 11);  // 41 ms at 4 ms a token, rounded up
  EXPECT_EQ(make_speedup({base, {100}}, {runs, {90}})->break_even_tokens, 0);
  const auto slower = make_speedup({runs, {100}}, {base, {141}});
  EXPECT_FALSE(slower->break_even_tokens.has_value());
  EXPECT_DOUBLE_EQ(*slower->end_to_end, 120.0 / 201);
  const Timing t = make_timing(runs, {141}, [](const RunMetrics&) { return 1.0; });
  EXPECT_DOUBLE_EQ(*t.preparation_ms, 141);
  EXPECT_DOUBLE_EQ(*t.end_to_end_ms, 161);
  // Where the preparation is not known, there is no whole generation.
  EXPECT_FALSE(make_speedup({base, {}}, {runs, {141}})->end_to_end.has_value());
}

TEST(Levels, AreSumsOverTimedRuns) {
  MeasuredRun a = run_of(0, 0, 1), b = run_of(0, 1, 1), w = warmup_of(1);
  a.metrics = b.metrics = w.metrics = triforce_metrics();
  b.metrics.levels[1].tested_at.resize(40);  // as the engine sizes them for auto gammas
  b.metrics.levels[1].accepted_at.resize(40);
  b.metrics.levels[1].histogram.resize(41);
  const auto levels = merged_levels({w, a, b});
  ASSERT_EQ(levels.size(), 2U);
  EXPECT_EQ(levels[0].rounds, 48);
  EXPECT_EQ(levels[1].name, "outer");
  EXPECT_EQ(levels[1].accepted, 40);
  EXPECT_EQ(levels[1].tested_at.size(), 6U);
  EXPECT_EQ(levels[1].histogram, (std::vector<std::int64_t>{0, 0, 0, 0, 0, 8, 0}));
}

TEST(Acceptance, IntervalsAreOverPromptsOrOverRepetitionsOfTheOnlyOne) {
  const auto with = [](int prompt, int repetition, int kept) {
    MeasuredRun r = run_of(prompt, repetition, 1);
    LevelCounters level;
    level.name = "outer";
    for (int i = 0; i < 10; ++i) level.add_round(6, 6, i % 2 == 0 ? kept : 3);
    r.metrics.levels = {level};
    return r;
  };
  const std::vector<MeasuredRun> one = {with(0, 0, 2), with(0, 1, 4), with(0, 2, 6)};
  auto level = make_acceptance(one, false).at(0);
  ASSERT_TRUE(level.ci95.has_value());
  EXPECT_EQ(level.ci95->over, IntervalOver::kRepetitions);
  EXPECT_LT(level.ci95->acceptance_rate.low, level.acceptance_rate());
  EXPECT_GT(level.ci95->acceptance_rate.high, level.acceptance_rate());
  // At temperature 0 they are one observation, of which there is no interval.
  EXPECT_FALSE(make_acceptance(one, true).at(0).ci95.has_value());
  EXPECT_FALSE(make_acceptance({one[0], warmup_of(1)}, false).at(0).ci95.has_value());

  // Two prompts that agree: only the number of trials counts, and repetitions of the same
  // generation add none.
  const std::vector<MeasuredRun> once = {with(0, 0, 4), with(1, 0, 4)};
  std::vector<MeasuredRun> twice = once;
  twice.push_back(with(0, 1, 4));
  twice.push_back(with(1, 1, 4));
  const auto width = [](const LevelResult& l) {
    EXPECT_EQ(l.ci95->over, IntervalOver::kPrompts);
    return l.ci95->acceptance_rate.high - l.ci95->acceptance_rate.low;
  };
  EXPECT_DOUBLE_EQ(width(make_acceptance(twice, true).at(0)),
                   width(make_acceptance(once, false).at(0)));
  EXPECT_LT(width(make_acceptance(twice, false).at(0)), width(make_acceptance(once, false).at(0)));
}

TEST(Acceptance, EveryRateHasAnIntervalThatHoldsIt) {
  LevelCounters a, b;
  a.name = b.name = "outer";
  for (int i = 0; i < 20; ++i) {
    a.add_round(6, 6, i % 7);
    b.add_round(6, 6, 6 - i % 3);
  }
  b.add_round(6, 7, 7);  // position 7 was tested on one prompt only
  const auto ci = level_intervals(std::vector<LevelCounters>{a, b}, IntervalOver::kPrompts, 1);
  ASSERT_TRUE(ci.has_value());
  LevelCounters sum = a;
  sum.merge(b);
  const auto holds = [](const Interval& i, double rate) { return i.low <= rate && rate <= i.high; };
  EXPECT_TRUE(holds(ci->acceptance_rate, sum.acceptance_rate()));
  EXPECT_TRUE(holds(ci->alpha, sum.alpha()));
  EXPECT_TRUE(holds(ci->accepted_per_drafted, sum.accepted_per_drafted()));
  EXPECT_TRUE(holds(ci->mean_accepted_length, sum.mean_accepted_length()));
  const std::vector<double> tested = rate_per_position(sum),
                            all = unconditional_rate_per_position(sum);
  ASSERT_EQ(ci->rate_per_position.low.size(), 7U);
  ASSERT_EQ(ci->unconditional_rate_per_position.high.size(), 7U);
  const auto end = [](const PositionIntervals& p, std::size_t i) {
    return Interval{p.low[i], p.high[i]};
  };
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_TRUE(holds(end(ci->unconditional_rate_per_position, i), all[i])) << i;
    if (i == 6) continue;
    EXPECT_TRUE(holds(end(ci->rate_per_position, i), tested[i])) << i;
  }
  EXPECT_TRUE(std::isnan(ci->rate_per_position.low[6]));
  EXPECT_DOUBLE_EQ(all[6], 1.0 / 41);
  EXPECT_FALSE(level_intervals(std::vector<LevelCounters>{a}, IntervalOver::kPrompts, 1));
}

TEST(Acceptance, OfRoundsThatAllTookEverythingIsNotCertain) {
  LevelCounters a;
  for (int i = 0; i < 50; ++i) a.add_round(6, 6, 6);
  const auto ci = level_intervals(std::vector<LevelCounters>{a, a}, IntervalOver::kPrompts, 1);
  // Of 100 rounds, each one trial: Wilson's lower end is 1 / (1 + 1.96^2 / 100).
  EXPECT_NEAR(ci->mean_accepted_length.low, 1 + 6 / (1 + 0.03841459), 1e-6);
  EXPECT_DOUBLE_EQ(ci->mean_accepted_length.high, 7);
  EXPECT_DOUBLE_EQ(ci->alpha.high, 1);
  EXPECT_LT(ci->alpha.low, 1);
  EXPECT_NEAR(ci->acceptance_rate.low, 1 / (1 + 0.03841459 / 6), 1e-6);  // of 600 tokens
  // Also where an inner level proposed one more in some rounds.
  LevelCounters more;
  for (int i = 0; i < 50; ++i) more.add_round(6, 6 + i % 2, 6 + i % 2);
  const auto of_more =
      level_intervals(std::vector<LevelCounters>{more, more}, IntervalOver::kPrompts, 1);
  EXPECT_NEAR(of_more->mean_accepted_length.low, 1 + 6.5 / (1 + 0.03841459), 1e-6);
  EXPECT_DOUBLE_EQ(of_more->mean_accepted_length.high, 7.5);
}

std::size_t at(Phase phase) { return static_cast<std::size_t>(phase); }

TEST(Phases, ArePerRound) {
  MeasuredRun a = run_of(0, 0, 1);
  a.metrics = triforce_metrics();
  const MethodSpec& method = spec_of(Method::kTriForce);
  const auto phases = phases_per_round(method, {warmup_of(1), a, a});
  ASSERT_TRUE(phases.has_value());
  EXPECT_DOUBLE_EQ((*phases)[at(phase_of(Pass::kRetrieval))], 3);
  EXPECT_TRUE(std::isnan((*phases)[at(phase_of(Pass::kStreaming))]));
  EXPECT_DOUBLE_EQ((*phases)[at(Phase::kHostGap)], 0.4);
  EXPECT_FALSE(phases_per_round(method, {warmup_of(1)}).has_value());
}

// 1000, 200, 150 and 30 bytes a pass, whatever the context.
PerPass<PassWork> known_bytes() {
  PerPass<PassWork> bytes;
  bytes[Pass::kFull].weights = 1000;
  bytes[Pass::kRetrieval].weights = 200;
  bytes[Pass::kStreaming].weights = 150;
  bytes[Pass::kDraft].weights = 30;
  return bytes;
}

TEST(Traffic, CountsThePassesOfEachMethod) {
  const PerPass<PassWork> bytes = known_bytes();
  const RunMetrics ar = run_of(0, 0, 1).metrics;
  auto passes = count_passes(spec_of(Method::kAutoregressive), ar, bytes, 100);
  ASSERT_EQ(passes.size(), 1U);
  EXPECT_EQ(passes[0].passes, 10);
  EXPECT_EQ(passes[0].bytes_per_pass, 1000);

  const RunMetrics two = triforce_metrics();
  passes = count_passes(spec_of(Method::kTriForce), two, bytes, 100);
  ASSERT_EQ(passes.size(), 3U);
  EXPECT_EQ(passes[0].passes, 24);  // one pass of the drafter a drafted token
  EXPECT_EQ(passes[0].bytes_per_pass, 30);
  EXPECT_EQ(passes[1].passes, 24);
  EXPECT_EQ(passes[1].bytes_per_pass, 200);
  EXPECT_EQ(passes[2].passes, 4);

  RunMetrics one = two;
  one.levels.erase(one.levels.begin());
  for (const auto& [method, draft_bytes] :
       {std::pair{Method::kRetrieval, 200}, {Method::kStreaming, 150}, {Method::kDraft, 30}}) {
    passes = count_passes(spec_of(method), one, bytes, 100);
    ASSERT_EQ(passes.size(), 2U);
    EXPECT_EQ(passes[0].passes, 24);
    EXPECT_EQ(passes[0].bytes_per_pass, draft_bytes);
    EXPECT_EQ(passes[1].passes, 4);
  }
}

// No method of the table has three levels, but one may.
constexpr MethodSpec kThreeLevels = {
    Method::kTriForce,
    "three-level",
    "",
    {Pass::kDraft, Pass::kStreaming, Pass::kRetrieval, Pass::kFull},
    4,
    {}};

TEST(Traffic, LevelsAndPassesOfAThreeLevelMethodHaveNamesOfTheirOwn) {
  MeasuredRun a = run_of(0, 0, 1);
  a.metrics = triforce_metrics();
  LevelCounters middle = a.metrics.levels.front();
  middle.rounds = 12;
  a.metrics.levels.insert(a.metrics.levels.begin() + 1, middle);
  std::vector<std::string> levels, passes;
  for (int l = 0; l < kThreeLevels.levels(); ++l) levels.emplace_back(kThreeLevels.level_name(l));
  EXPECT_EQ(levels, (std::vector<std::string>{"inner", "middle", "outer"}));
  const auto traffic = make_traffic(kThreeLevels, {a}, known_bytes(), 100, {});
  for (const PassTraffic& t : traffic) passes.push_back(t.pass);
  EXPECT_EQ(passes, (std::vector<std::string>{"draft", "streaming", "retrieval", "full"}));
  EXPECT_EQ(traffic[1].bytes_per_pass, 150);
  EXPECT_EQ(traffic[2].bytes_per_pass, 200);
  const auto tokens = static_cast<double>(a.metrics.tokens.size());
  EXPECT_DOUBLE_EQ(traffic[1].passes_per_token, 24 / tokens);
  EXPECT_DOUBLE_EQ(traffic[2].passes_per_token, 12 / tokens);
  // Each has the time of its own phase, which the one over the streaming cache has none of here.
  EXPECT_FALSE(traffic[1].ms_per_pass);
  EXPECT_DOUBLE_EQ(*traffic[2].ms_per_pass, 1);  // 12 ms over 12 passes
  EXPECT_TRUE(traffic[0].ms_per_pass && traffic[3].ms_per_pass);
}

TEST(Traffic, StandsBesideTheMeasuredBandwidth) {
  MeasuredRun a = run_of(0, 0, 1);
  a.metrics = triforce_metrics();
  PerPass<PassWork> bytes;
  bytes[Pass::kFull] = {10'000'000, 20'000, 8'000, 0,
                        4000};  // 40 MB at 1500 tokens, 12 of them far
  const MethodSpec& triforce = spec_of(Method::kTriForce);
  ResultContext measured;
  measured.measured_read_gbs = 20.0;
  measured.measured_h2d_gbs = 4.0;
  const auto traffic = make_traffic(triforce, {a, a}, bytes, 1500, measured);
  ASSERT_EQ(traffic.size(), 3U);
  EXPECT_EQ(traffic[2].pass, "full");
  EXPECT_DOUBLE_EQ(traffic[2].passes_per_token, 0.2);
  EXPECT_DOUBLE_EQ(*traffic[2].ms_per_pass, 4);    // 16 ms over 4 passes
  EXPECT_DOUBLE_EQ(*traffic[2].achieved_gbs, 10);  // 40 MB in 4 ms
  EXPECT_DOUBLE_EQ(*traffic[2].fraction_read, 0.5);
  EXPECT_EQ(traffic[2].bus_bytes_per_pass, 12'000'000);
  EXPECT_DOUBLE_EQ(*traffic[2].bus_gbs, 3);
  EXPECT_DOUBLE_EQ(*traffic[2].fraction_h2d, 0.75);
  EXPECT_EQ(traffic[1].bus_bytes_per_pass, 0);
  EXPECT_FALSE(traffic[1].bus_gbs.has_value());
  EXPECT_FALSE(make_traffic(triforce, {a}, bytes, 1500, {})[2].fraction_read.has_value());
  EXPECT_FALSE(make_traffic(triforce, {a}, bytes, 1500, {})[2].fraction_h2d.has_value());
  EXPECT_TRUE(make_traffic(triforce, {}, bytes, 1500, measured).empty());

  // 1500 keys and one of the rows: what takes longest is the bound.
  EXPECT_DOUBLE_EQ(*traffic[2].rows_per_pass, 7);  // 4 rounds with 24 drafted
  EXPECT_DOUBLE_EQ(*traffic[1].rows_per_pass, 2);
  EXPECT_FALSE(traffic[0].rows_per_pass);
  EXPECT_FALSE(traffic[2].bound_ms);  // its operations are not known
  bytes[Pass::kFull].row_operations = 1e8;
  bytes[Pass::kFull].key_operations = 1e5;
  EXPECT_DOUBLE_EQ(*make_traffic(triforce, {a}, bytes, 1500, measured)[2].bound_ms, 3);
  for (const auto& [gflops, h2d, bound] : {std::tuple{1000.0, 12.0, 2.0},  // 40 MB by 20 GB/s
                                           {1000.0, 4.0, 3.0},             // 12 MB by 4 GB/s
                                           {500.0, 4.0, 3.5}}) {           // 7 rows of .25e9
    measured.measured_gemm_gflops = gflops;
    measured.measured_h2d_gbs = h2d;
    const PassTraffic full = make_traffic(triforce, {a}, bytes, 1500, measured)[2];
    EXPECT_DOUBLE_EQ(*full.operations_per_pass, 1.75e9);
    EXPECT_DOUBLE_EQ(*full.bound_ms, bound);
    EXPECT_DOUBLE_EQ(*full.fraction_bound, bound / 4);
  }
  bytes[Pass::kFull].lanes = 3;
  EXPECT_DOUBLE_EQ(*make_traffic(triforce, {a}, bytes, 1500, measured)[2].rows_per_pass, 21);
  bytes[Pass::kFull].lanes = 1;
  measured.measured_read_gbs.reset();
  EXPECT_FALSE(make_traffic(triforce, {a}, bytes, 1500, measured)[2].bound_ms);
  measured.measured_read_gbs = 20.0;

  // By prompt: the second has none, the third takes three times as long in half of the passes.
  MeasuredRun c = run_of(2, 0, 1);
  c.metrics = a.metrics;
  c.metrics.phase_ms[at(phase_of(kFullPass))] *= 3;
  const PassTraffic outer = make_traffic(triforce, {a, c, a}, bytes, 1500, measured)[2];
  ASSERT_EQ(outer.ms_per_pass_of_prompt.size(), 3U);
  EXPECT_DOUBLE_EQ(outer.ms_per_pass_of_prompt[0], 4);
  EXPECT_TRUE(std::isnan(outer.ms_per_pass_of_prompt[1]));
  EXPECT_DOUBLE_EQ(outer.ms_per_pass_of_prompt[2], 12);
  EXPECT_DOUBLE_EQ(*outer.ms_per_pass, (4 + 12 + 4) / 3.0);
}

TEST(Traffic, ACacheReadsWhatItHolds) {
  PassWork bytes{5000, 100, 25, 10, 64};
  EXPECT_EQ(bytes.at(1000), 5000 + 64 * 100);
  EXPECT_EQ(bytes.at(50), 5000 + 50 * 100);
  EXPECT_EQ(bytes.far_at(1000), 64 * 25);
  EXPECT_EQ(bytes.far_at(50), 50 * 25);
  EXPECT_EQ(bytes.host_at(1000), 64 * 10);
  bytes.all_per_token = 30;
  EXPECT_EQ(bytes.at(1000), 5000 + 64 * 100 + 1000 * 30);
}

}  // namespace
}  // namespace triforce
