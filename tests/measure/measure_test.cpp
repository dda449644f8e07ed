#include "measure/measure.h"

#include <gtest/gtest.h>

#include <cmath>

#include "measure/level_intervals.h"
#include "measure/measure_parts.h"
#include "measure/measure_state.h"
#include "report/sample_result.h"

namespace triforce {
namespace {

// A timed run of 10 tokens in 10 * ms.
MeasuredRun run_of(int prompt, int repetition, double ms, std::vector<Token> tokens = {}) {
  MeasuredRun r;
  r.prompt = prompt;
  r.repetition = repetition;
  r.seed = 42 + static_cast<std::uint64_t>(repetition);
  r.metrics.tokens = tokens.empty() ? std::vector<Token>(10, 1) : std::move(tokens);
  r.metrics.decode_ms = ms * static_cast<double>(r.metrics.tokens.size());
  r.metrics.rounds = static_cast<std::int64_t>(r.metrics.tokens.size());
  return r;
}

MeasuredRun warmup_of(double ms) {
  MeasuredRun r = run_of(0, 0, ms);
  r.warmup = true;
  return r;
}

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
  o.synthetic = SyntheticAcceptance{0.9, 0.5};
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
  const std::vector<PrefillMetrics> prefills = {{100, 1000, 50, 20, 8, false}};
  const auto of = [&](Method m) { return preparation_ms(spec_of(m), prefills).at(0); };
  EXPECT_DOUBLE_EQ(of(Method::kAutoregressive), 1000);
  EXPECT_DOUBLE_EQ(of(Method::kRetrieval), 1050);
  EXPECT_DOUBLE_EQ(of(Method::kStreaming), 1020);
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

RunMetrics triforce_metrics() {
  RunMetrics m;
  m.tokens.assign(20, 1);
  m.rounds = 4;
  LevelCounters inner, outer;
  inner.name = "inner";
  outer.name = "outer";
  for (int i = 0; i < 24; ++i) inner.add_round(1, 1, i % 2);
  for (int i = 0; i < 4; ++i) outer.add_round(6, 6, 5);
  m.levels = {inner, outer};
  m.phase_ms = {2.4, 12, 16, 4, 2, 0, 1.6};
  m.decode_ms = 38;
  return m;
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

TEST(Phases, ArePerRound) {
  MeasuredRun a = run_of(0, 0, 1);
  a.metrics = triforce_metrics();
  const auto phases = phases_per_round({warmup_of(1), a, a});
  ASSERT_TRUE(phases.has_value());
  EXPECT_DOUBLE_EQ((*phases)[static_cast<std::size_t>(Phase::kInnerVerify)], 3);
  EXPECT_DOUBLE_EQ((*phases)[static_cast<std::size_t>(Phase::kHostGap)], 0.4);
  EXPECT_FALSE(phases_per_round({warmup_of(1)}).has_value());
}

// 1000, 200, 150 and 30 bytes a pass, whatever the context.
PerPass<PassBytes> known_bytes() {
  PerPass<PassBytes> bytes;
  bytes[Pass::kFull].weights = 1000;
  bytes[Pass::kRetrieval].weights = 200;
  bytes[Pass::kStreaming].weights = 150;
  bytes[Pass::kDraft].weights = 30;
  return bytes;
}

TEST(Traffic, CountsThePassesOfEachMethod) {
  const PerPass<PassBytes> bytes = known_bytes();
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

TEST(Traffic, StandsBesideTheMeasuredBandwidth) {
  MeasuredRun a = run_of(0, 0, 1);
  a.metrics = triforce_metrics();
  PerPass<PassBytes> bytes;
  bytes[Pass::kFull] = {10'000'000, 20'000, 8'000, 0,
                        4000};  // 40 MB at 1500 tokens, 12 of them far
  const MethodSpec& triforce = spec_of(Method::kTriForce);
  ResultContext measured;
  measured.measured_read_gbs = 20.0;
  measured.measured_h2d_gbs = 4.0;
  const auto traffic = make_traffic(triforce, {a, a}, bytes, 1500, measured);
  ASSERT_EQ(traffic.size(), 3U);
  EXPECT_EQ(traffic[2].pass, "outer_verify");
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

  // By prompt: the second has none, the third takes three times as long in half of the passes.
  MeasuredRun c = run_of(2, 0, 1);
  c.metrics = a.metrics;
  c.metrics.phase_ms[static_cast<std::size_t>(Phase::kOuterVerify)] *= 3;
  const PassTraffic outer = make_traffic(triforce, {a, c, a}, bytes, 1500, measured)[2];
  ASSERT_EQ(outer.ms_per_pass_of_prompt.size(), 3U);
  EXPECT_DOUBLE_EQ(outer.ms_per_pass_of_prompt[0], 4);
  EXPECT_TRUE(std::isnan(outer.ms_per_pass_of_prompt[1]));
  EXPECT_DOUBLE_EQ(outer.ms_per_pass_of_prompt[2], 12);
  EXPECT_DOUBLE_EQ(*outer.ms_per_pass, (4 + 12 + 4) / 3.0);
}

TEST(Traffic, ACacheReadsWhatItHolds) {
  PassBytes bytes{5000, 100, 25, 10, 64};
  EXPECT_EQ(bytes.at(1000), 5000 + 64 * 100);
  EXPECT_EQ(bytes.at(50), 5000 + 50 * 100);
  EXPECT_EQ(bytes.far_at(1000), 64 * 25);
  EXPECT_EQ(bytes.far_at(50), 50 * 25);
  EXPECT_EQ(bytes.host_at(1000), 64 * 10);
  bytes.all_per_token = 30;
  EXPECT_EQ(bytes.at(1000), 5000 + 64 * 100 + 1000 * 30);
}

// ---- From made-up measurements to a result.
struct Fixture {
  Fixture() {
    input.config.methods = {Method::kAutoregressive, Method::kTriForce};
    input.config.repetitions = 5;
    input.config.speculation.sampling.temperature = 0;
    input.prompts = prompts;
    input.context = sample_context();
    input.target_info = *sample_triforce().target;
    input.draft_info = *sample_triforce().draft;
    input.draft_info->random_seed.reset();
    MethodState ar, triforce;
    ar.method = &spec_of(Method::kAutoregressive);
    triforce.method = &spec_of(Method::kTriForce);
    for (int r = 0; r < 5; ++r) {
      ar.runs.push_back(run_of(0, r, 4, std::vector<Token>(20, 1)));
      MeasuredRun t = run_of(0, r, 0);
      t.metrics = triforce_metrics();
      triforce.runs.push_back(t);
    }
    state.methods = {ar, triforce};
    input.plan.passes[Pass::kFull].weights = 1000;
    state.ended = true;
  }
  RunResult result() const { return build_result(input, state); }
  bool has_reason(int i, const std::string& part) const {
    const RunResult r = result();
    const Validity& v = r.cases[static_cast<std::size_t>(i)].validity;
    EXPECT_EQ(v.comparable, v.reasons.empty());
    return std::any_of(v.reasons.begin(), v.reasons.end(), [&](const std::string& reason) {
      return reason.find(part) != std::string::npos;
    });
  }
  std::vector<std::vector<Token>> prompts{1};
  MeasureInput input;
  MeasurementState state;
};

TEST(Result, OfACompleteRun) {
  const Fixture f;
  const RunResult r = f.result();
  EXPECT_EQ(r.exit_code, ExitCode::kOk);
  ASSERT_EQ(r.cases.size(), 2U);
  const CaseResult &ar = r.cases[0], &triforce = r.cases[1];
  EXPECT_EQ(ar.status, CaseStatus::kOk);
  EXPECT_TRUE(ar.validity.comparable);
  EXPECT_FALSE(ar.speedup || ar.draft || ar.gammas);
  EXPECT_TRUE(triforce.draft.has_value());
  EXPECT_EQ(triforce.lossless.equal_to_baseline, true);
  EXPECT_NEAR(*triforce.speedup->value, 4 / 1.9, 1e-12);
  EXPECT_EQ(triforce.output.size(), 1U);
  EXPECT_EQ(triforce.output[0].sha256, triforce.timing.samples[0].tokens_sha256);
}

TEST(Result, CopiesOfAnAnswer) {
  std::vector<MeasuredRun> runs = {run_of(0, 0, 4, {1, 2, 3, 4}), run_of(1, 0, 4, {5, 6, 7, 8})};
  const std::vector<std::vector<Token>> answers = {{1, 2, 3, 4, 9}, {5, 0, 7}};
  const CopiedResult c = *copied_answers(runs, answers, 4);
  EXPECT_EQ(c.asked_tokens, 4 + 3);
  EXPECT_EQ(c.equal_tokens, 4 + 2);
  EXPECT_EQ(c.generations, 2);
  EXPECT_EQ(c.whole_generations, 1);
  EXPECT_EQ(c.tokens(), 6.0 / 7);
  EXPECT_EQ(c.whole(), 0.5);
  EXPECT_EQ(copied_answers(runs, answers, 5)->whole(), 0);  // one ended before the key did
  EXPECT_FALSE(copied_answers(runs, {}, 4));
  runs[1].warmup = true;
  EXPECT_EQ(copied_answers(runs, answers, 4)->tokens(), 1);
  runs[0].warmup = true;
  EXPECT_FALSE(copied_answers(runs, answers, 4));
  Fixture f;
  EXPECT_FALSE(f.has_reason(0, "pass key"));
  std::vector<std::vector<Token>> keys = {
      std::vector<Token>(20, 1)};  // what the baseline generates
  f.input.answers = keys;
  EXPECT_FALSE(f.has_reason(0, "pass key"));
  std::fill_n(keys[0].begin(), 2, 0);
  EXPECT_FALSE(f.has_reason(0, "pass key"));
  keys[0][2] = 0;
  EXPECT_TRUE(f.has_reason(0, "0.850 of the tokens are the pass key's"));
  EXPECT_EQ(f.result().cases[0].copied->tokens(), 0.85);
  EXPECT_EQ(f.result().cases[0].copied->whole(), 0);
}

// A second method of Fixture that nothing verifies.
Fixture lossy_fixture() {
  Fixture f;
  MethodState& lossy = f.state.methods[1];
  lossy.method = &spec_of(Method::kLossyStreaming);
  f.input.config.methods[1] = Method::kLossyStreaming;
  for (MeasuredRun& r : lossy.runs) {
    r.metrics.levels.clear();
    r.metrics.tokens = std::vector<Token>(20, 1);
    r.metrics.tokens[static_cast<std::size_t>(r.repetition) + 5] = 9;
  }
  return f;
}

TEST(Result, LossyMethodsAreLabelled) {
  Fixture f = lossy_fixture();
  const RunResult r = f.result();
  const CaseResult& c = r.cases[1];
  EXPECT_EQ(r.exit_code, ExitCode::kOk);
  EXPECT_EQ(c.lossless.mode, LosslessMode::kLossy);
  EXPECT_FALSE(c.lossless.equal_to_baseline || c.gammas);
  EXPECT_TRUE(f.has_reason(1, "not lossless"));
  EXPECT_FALSE(f.has_reason(0, "lossless"));
  EXPECT_TRUE(c.acceptance.empty());
  EXPECT_EQ(c.lossless.equal_tokens, (5 + 6 + 7 + 8 + 9) / 100.0);
  EXPECT_EQ(r.cases[0].lossless.equal_tokens, std::nullopt);
  f.input.config.speculation.sampling.temperature = 0.6F;  // then they need not be equal
  EXPECT_EQ(f.result().cases[1].lossless.equal_tokens, std::nullopt);
  f.input.config.speculation.acceptance = Acceptance::kCoupled;
  EXPECT_TRUE(f.result().cases[1].lossless.equal_tokens.has_value());
  EXPECT_EQ(lossless_mode({}, spec_of(Method::kLossyRetrieval)), LosslessMode::kLossy);
}

MeasuredRun recovered(int prompt, int repetition, double share, std::int64_t rows) {
  MeasuredRun r = run_of(prompt, repetition, 1);
  r.metrics.recovery.emplace();
  for (std::int64_t i = 0; i < rows; ++i) {
    r.metrics.recovery->add(i, std::vector<double>{share / 4, share / 2, share, share});
  }
  return r;
}

TEST(Recovery, IsAMeanOverRowsWithAnIntervalOverPrompts) {
  std::vector<MeasuredRun> runs = {recovered(0, 0, 0.8, 10), recovered(1, 0, 0.4, 30)};
  const RecoveryResult r = *make_recovery(runs, false);
  EXPECT_EQ(r.rows, 40);
  EXPECT_NEAR(r.by_layer[2], 0.5, 1e-12);
  EXPECT_NEAR(r.mean, 0.5 * 2.75 / 4, 1e-12);
  EXPECT_NEAR(*r.mean_from_layer_2, 0.5, 1e-12);
  EXPECT_EQ(r.ci95_over, IntervalOver::kPrompts);
  EXPECT_LT(*r.ci95_low, r.mean);
  EXPECT_GT(*r.ci95_high, r.mean);
  ASSERT_EQ(r.by_age.size(), 6U);  // 0, 1, 2-3, 4-7, 8-15, 16-31
  EXPECT_EQ(r.by_age[0].to_tokens, 0);
  EXPECT_EQ(r.by_age[1].to_tokens, 1);
  EXPECT_EQ(r.by_age[4].to_tokens, 15);
  EXPECT_EQ(r.by_age[4].rows, 2 + 8);
  EXPECT_NEAR(r.by_age[4].by_layer[3], (2 * 0.8 + 8 * 0.4) / 10, 1e-12);
  // Prompts that agree more have a narrower interval, and nothing of one prompt that repeats
  // itself.
  const std::vector<MeasuredRun> alike = {recovered(0, 0, 0.51, 20), recovered(1, 0, 0.49, 20)};
  const RecoveryResult a = *make_recovery(alike, false);
  EXPECT_LT(*a.ci95_high - *a.ci95_low, *r.ci95_high - *r.ci95_low);
  runs[1].prompt = 0;
  runs[1].repetition = 1;
  EXPECT_EQ(make_recovery(runs, false)->ci95_over, IntervalOver::kRepetitions);
  EXPECT_FALSE(make_recovery(runs, true)->ci95_low);
  runs[0].warmup = true;
  EXPECT_EQ(make_recovery(runs, false)->rows, 30);
  runs[1].metrics.recovery.reset();
  EXPECT_FALSE(make_recovery(runs, false));
}

TEST(Recovery, ItsTimesAreNotComparable) {
  Fixture f;
  EXPECT_FALSE(f.has_reason(1, "--measure-recovery"));
  f.state.methods[1].runs[2].metrics.recovery = recovered(0, 0, 0.5, 2).metrics.recovery;
  EXPECT_TRUE(f.has_reason(1, "--measure-recovery"));
  EXPECT_FALSE(f.has_reason(0, "--measure-recovery"));
  EXPECT_EQ(f.result().cases[1].recovery->rows, 2);
}

TEST(Result, BrokenLosslessnessExitsSeven) {
  Fixture f;
  f.state.methods[1].runs[3].metrics.tokens[2] = 9;
  EXPECT_EQ(f.result().exit_code, ExitCode::kNumeric);
  EXPECT_EQ(f.result().cases[1].lossless.first_divergence->repetition, 3);
  EXPECT_TRUE(f.has_reason(1, "differ"));
  f.input.config.speculation.sampling.temperature = 0.6F;  // then they need not be equal
  EXPECT_EQ(f.result().exit_code, ExitCode::kOk);
  EXPECT_EQ(f.result().cases[1].lossless.mode, LosslessMode::kDistribution);
}

TEST(Result, ReasonsAgainstComparing) {
  Fixture f;
  EXPECT_FALSE(f.has_reason(1, ""));
  f.input.context.build_type = "Debug";
  EXPECT_TRUE(f.has_reason(0, "build type Debug"));
  f = Fixture();
  f.input.context.build_type = "RelWithDebInfo+sanitizers";
  EXPECT_TRUE(f.has_reason(0, "build type"));
  f = Fixture();
  f.input.target_info->random_seed = 1;
  EXPECT_TRUE(f.has_reason(0, "random weights"));
  f = Fixture();
  f.input.draft_info->random_seed = 1;
  EXPECT_FALSE(f.has_reason(0, "random weights"));  // the baseline has no drafter
  EXPECT_TRUE(f.has_reason(1, "random weights of the drafter"));
  f = Fixture();
  f.input.config.speculation.synthetic = SyntheticAcceptance{0.9, 0.5};
  EXPECT_TRUE(f.has_reason(1, "synthetic acceptance"));
  f = Fixture();
  f.input.config.speculation.inner_correction = Correction::kTarget;
  EXPECT_TRUE(f.has_reason(1, "published inner rule"));
  EXPECT_FALSE(f.has_reason(0, "published inner rule"));
  f = Fixture();
  f.input.config.warmup = 0;
  EXPECT_TRUE(f.has_reason(0, "no warm-up"));
  f = Fixture();
  f.state.methods[1].runs[0].metrics.tokens.resize(7);
  EXPECT_TRUE(f.has_reason(0, "different numbers of tokens"));
  f = Fixture();
  f.input.config.max_noise_pct = 5;
  EXPECT_FALSE(f.has_reason(0, "noise"));
  f.state.methods[0].runs[0].metrics.decode_ms *= 2;
  EXPECT_TRUE(f.has_reason(0, "noise"));
  EXPECT_EQ(f.result().exit_code, ExitCode::kInconclusive);
  f = Fixture();
  f.state.gpu.throttle_reasons = std::vector<std::string>{"sw_power_cap"};
  EXPECT_FALSE(f.has_reason(0, "throttled"));  // what full load does
  f.state.gpu.throttle_reasons->emplace_back("hw_slowdown");
  EXPECT_TRUE(f.has_reason(0, "throttled clocks: hw_slowdown"));
}

// Times of all cases are of the same disturbed machine, and so is what follows from them.
TEST(Result, OtherWorkOnTheMachineIsAReasonOfAllCases) {
  Fixture f;
  f.input.context.gpu_name.reset();
  f.input.context.threads = 2;
  f.state.load = MachineLoad{4, 1.9, 1.5, 0};
  EXPECT_FALSE(f.has_reason(0, "other processes"));  // enough is left for two threads
  f.state.load->other = 3.2;
  for (const int i : {0, 1}) {
    EXPECT_TRUE(f.has_reason(i,
                             "other processes kept 3.2 of 4 processors busy, and this one "
                             "computes with 2 threads"));
  }
  EXPECT_EQ(f.result().context.load->other, 3.2);
  f.input.context.gpu_name = "Example GPU";  // one thread launches
  f.state.load->other = 2.5;
  EXPECT_FALSE(f.has_reason(0, "other processes"));
}

TEST(Result, APrefillStandsBesideTheMeasuredRate) {
  Fixture f;
  f.input.plan.prefill_operations = 3e9;
  f.input.context.measured_gemm_gflops = 400;
  EXPECT_FALSE(f.result().cases[0].timing.prefill_operations);  // no prompt is done
  f.state.prefills = {{.target_ms = 8}, {.target_ms = 20}, {.target_ms = 10}};
  const RunResult measured = f.result();
  for (const CaseResult& c : measured.cases) {
    EXPECT_EQ(c.timing.prefill_operations, 3e9);
    EXPECT_EQ(c.timing.prefill_gflops, 300);  // the median prompt
    EXPECT_EQ(c.timing.prefill_fraction_gemm, 0.75);
  }
  f.input.context.measured_gemm_gflops.reset();
  EXPECT_EQ(f.result().cases[0].timing.prefill_gflops, 300);
  EXPECT_FALSE(f.result().cases[0].timing.prefill_fraction_gemm);
}

TEST(Result, MemoryOfAnotherSpeedAfterwardsIsAReasonOfAllCases) {
  Fixture f;
  f.input.context.measured_read_gbs = 20;
  for (const double same : {10.1, 20.0, 39.9}) {
    f.state.read_gbs_after = same;
    EXPECT_FALSE(f.has_reason(0, "bandwidth")) << same;
  }
  for (const double other : {9.9, 40.5}) {
    f.state.read_gbs_after = other;
    for (const int i : {0, 1}) {
      EXPECT_TRUE(f.has_reason(i, "the memory's read bandwidth was 20 GB/s before and ")) << other;
    }
  }
  EXPECT_EQ(f.result().context.measured_read_gbs_after, 40.5);
  f.input.context.measured_read_gbs.reset();
  EXPECT_FALSE(f.has_reason(0, "bandwidth"));
}

TEST(Result, UnfinishedCasesKeepWhatTheyHave) {
  Fixture f;
  f.state.methods[1].runs.pop_back();
  f.state.stopped = true;
  RunResult r = f.result();
  EXPECT_EQ(r.exit_code, ExitCode::kInterrupted);
  EXPECT_EQ(r.cases[0].status, CaseStatus::kOk);
  EXPECT_EQ(r.cases[1].status, CaseStatus::kInterrupted);
  EXPECT_EQ(r.cases[1].status_reason, "stopped by a signal: 4 of 5 generations finished");
  EXPECT_EQ(r.cases[1].timing.ms_per_token.n, 4);
  EXPECT_FALSE(r.cases[1].validity.comparable);
  f.state.timed_out = true;
  r = f.result();
  EXPECT_EQ(r.exit_code, ExitCode::kInconclusive);
  EXPECT_EQ(r.cases[1].status, CaseStatus::kTimeout);
  f.state = Fixture().state;
  f.state.methods[1].failed = CaseStatus::kOom;
  f.state.methods[1].reason = "no memory";
  f.state.first_error = ExitCode::kResources;
  r = f.result();
  EXPECT_EQ(r.exit_code, ExitCode::kResources);
  EXPECT_EQ(r.cases[1].status_reason, "no memory");
}

TEST(Result, OfARunThatNeverStarted) {
  Fixture f;
  f.input.prompts = {};
  f.input.plan.bytes[0] = 123;
  const RunResult r =
      unrun_result(f.input, CaseStatus::kSkippedMemory, "too large", ExitCode::kResources);
  EXPECT_EQ(r.exit_code, ExitCode::kResources);
  ASSERT_EQ(r.cases.size(), 2U);
  for (const CaseResult& c : r.cases) {
    EXPECT_EQ(c.status, CaseStatus::kSkippedMemory);
    EXPECT_EQ(c.status_reason, "too large");
    EXPECT_FALSE(c.validity.comparable);
    EXPECT_EQ(c.memory.planned->total(), 123);
    EXPECT_FALSE(c.memory.peak.has_value());
  }
  EXPECT_NE(to_table(r).find("skipped_memory"), std::string::npos);
}

}  // namespace
}  // namespace triforce
