// From made-up measurements to a result.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "measure/made_up_runs.h"
#include "measure/measure.h"
#include "measure/measure_state.h"
#include "report/sample_result.h"

namespace triforce {
namespace {

struct Fixture {
  Fixture() {
    config.methods = {Method::kAutoregressive, Method::kTriForce};
    config.repetitions = 5;
    config.speculation.sampling.temperature = 0;
    input.workload.prompts = prompts;
    input.facts.context = sample_context();
    input.facts.target = *sample_triforce().target;
    input.facts.draft = *sample_triforce().draft;
    input.facts.draft->random_seed.reset();
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
    input.machine.plan.passes[Pass::kFull].weights = 1000;
    state.ended = true;
  }
  RunResult result() const {
    MeasureInput of = input;
    of.facts.config = &config;
    return build_result(of, state);
  }
  bool has_reason(int i, const std::string& part) const {
    const RunResult r = result();
    const Validity& v = r.cases[static_cast<std::size_t>(i)].validity;
    EXPECT_EQ(v.comparable, v.reasons.empty());
    return std::any_of(v.reasons.begin(), v.reasons.end(), [&](const std::string& reason) {
      return reason.find(part) != std::string::npos;
    });
  }
  std::vector<std::vector<Token>> prompts{1};
  RunConfig config;
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

// Of the words expected those that the text has, in whatever case and wherever.
TEST(Result, AnswersInWords) {
  std::vector<MeasuredRun> runs = {run_of(0, 0, 4, {1, 2}), run_of(0, 1, 4, {3}),
                                   run_of(1, 0, 4, {2})};
  const std::vector<std::vector<std::string>> expected = {{"Tavomi", "123"},
                                                          {"b", "no", "so", "a"}};
  const auto text_of = [](std::span<const Token> ids) {
    std::string text;
    for (const Token id : ids) text += id == 1 ? " taVOMI" : id == 2 ? ", 123b" : "nothing";
    return text;
  };
  const AnsweredResult a = *make_answered(runs, expected, text_of);
  EXPECT_EQ(a.generations, 3);
  ASSERT_EQ(a.by_prompt.size(), 2U);
  EXPECT_EQ(a.by_prompt[0].generations, 2);
  EXPECT_EQ(a.by_prompt[0].mean, 0.5);   // all, and nothing
  EXPECT_EQ(a.by_prompt[1].mean, 0.25);  // "b" alone
  EXPECT_EQ(a.mean, 0.375);
  ASSERT_TRUE(a.ci95_low && a.ci95_high);
  EXPECT_LT(*a.ci95_low, 0.375);
  EXPECT_GT(*a.ci95_high, 0.375);
  EXPECT_FALSE(make_answered(runs, {}, text_of));
  runs[2].warmup = true;
  EXPECT_FALSE(make_answered(runs, expected, text_of)->ci95_low);  // of one prompt
  runs[0].warmup = runs[1].warmup = true;
  EXPECT_FALSE(make_answered(runs, expected, text_of));
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
  f.input.workload.answers = keys;
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
  f.config.methods[1] = Method::kLossyStreaming;
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
  f.config.speculation.sampling.temperature = 0.6F;  // then they need not be equal
  EXPECT_EQ(f.result().cases[1].lossless.equal_tokens, std::nullopt);
  f.config.speculation.acceptance = Acceptance::kCoupled;
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
  f.config.speculation.sampling.temperature = 0.6F;  // then they need not be equal
  EXPECT_EQ(f.result().exit_code, ExitCode::kOk);
  EXPECT_EQ(f.result().cases[1].lossless.mode, LosslessMode::kDistribution);
}

TEST(Result, ReasonsAgainstComparing) {
  Fixture f;
  EXPECT_FALSE(f.has_reason(1, ""));
  f.input.facts.context.build_type = "Debug";
  EXPECT_TRUE(f.has_reason(0, "build type Debug"));
  f = Fixture();
  f.input.facts.context.build_type = "RelWithDebInfo+sanitizers";
  EXPECT_TRUE(f.has_reason(0, "build type"));
  f = Fixture();
  f.input.facts.target->random_seed = 1;
  EXPECT_TRUE(f.has_reason(0, "random weights"));
  f = Fixture();
  f.input.facts.draft->random_seed = 1;
  EXPECT_FALSE(f.has_reason(0, "random weights"));  // the baseline has no drafter
  EXPECT_TRUE(f.has_reason(1, "random weights of the drafter"));
  f = Fixture();
  f.config.speculation.synthetic = SyntheticAcceptance{{0.9}, 0.5};
  EXPECT_TRUE(f.has_reason(1, "synthetic acceptance"));
  f = Fixture();
  f.config.speculation.inner_correction = Correction::kTarget;
  EXPECT_TRUE(f.has_reason(1, "published inner rule"));
  EXPECT_FALSE(f.has_reason(0, "published inner rule"));
  f = Fixture();
  f.config.warmup = 0;
  EXPECT_TRUE(f.has_reason(0, "no warm-up"));
  f = Fixture();
  f.state.methods[1].runs[0].metrics.tokens.resize(7);
  EXPECT_TRUE(f.has_reason(0, "different numbers of tokens"));
  f = Fixture();
  f.config.max_noise_pct = 5;
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
  f.input.facts.context.gpu_name.reset();
  f.input.facts.context.threads = 2;
  f.state.load = MachineLoad{4, 1.9, 1.5, 0};
  EXPECT_FALSE(f.has_reason(0, "other processes"));  // enough is left for two threads
  f.state.load->other = 3.2;
  for (const int i : {0, 1}) {
    EXPECT_TRUE(f.has_reason(i,
                             "other processes kept 3.2 of 4 processors busy, and this one "
                             "computes with 2 threads"));
  }
  EXPECT_EQ(f.result().context.load->other, 3.2);
  f.input.facts.context.gpu_name = "Example GPU";  // one thread launches
  f.state.load->other = 2.5;
  EXPECT_FALSE(f.has_reason(0, "other processes"));
}

TEST(Result, APrefillStandsBesideTheMeasuredRate) {
  Fixture f;
  f.input.machine.plan.prefill_operations = 3e9;
  f.input.facts.context.measured_gemm_gflops = 400;
  EXPECT_FALSE(f.result().cases[0].timing.prefill_operations);  // no prompt is done
  f.state.prefills = {{.fill_ms = {{8}}}, {.fill_ms = {{20}}}, {.fill_ms = {{10}}}};
  const RunResult measured = f.result();
  for (const CaseResult& c : measured.cases) {
    EXPECT_EQ(c.timing.prefill_operations, 3e9);
    EXPECT_EQ(c.timing.prefill_gflops, 300);  // the median prompt
    EXPECT_EQ(c.timing.prefill_fraction_gemm, 0.75);
  }
  f.input.facts.context.measured_gemm_gflops.reset();
  EXPECT_EQ(f.result().cases[0].timing.prefill_gflops, 300);
  EXPECT_FALSE(f.result().cases[0].timing.prefill_fraction_gemm);
}

TEST(Result, MemoryOfAnotherSpeedAfterwardsIsAReasonOfAllCases) {
  Fixture f;
  f.input.facts.context.measured_read_gbs = 20;
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
  f.input.facts.context.measured_read_gbs.reset();
  EXPECT_FALSE(f.has_reason(0, "bandwidth"));
}

// A signal or the time limit that comes when all is measured cuts nothing short.
TEST(Result, WhatComesAfterTheLastGenerationChangesNothing) {
  Fixture f;
  f.state.stopped = true;
  EXPECT_EQ(f.result().exit_code, ExitCode::kOk);
  f.state.timed_out = true;
  EXPECT_EQ(f.result().exit_code, ExitCode::kOk);
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
  f.input.facts.config = &f.config;
  f.input.workload.prompts = {};
  f.input.machine.plan.bytes[0] = 123;
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
