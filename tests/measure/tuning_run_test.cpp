// Settings that are chosen before a run.
#include <cmath>
#include <utility>

#include "measure/measure_run.h"
#include "report/printers.h"

namespace triforce {
namespace {

TEST_F(MeasureRun, AutomaticGammasAreReported) {
  config_.methods = {Method::kAutoregressive, Method::kTriForce, Method::kDraft};
  config_.auto_gamma = config_.auto_inner_gamma = true;
  config_.speculation.gamma = 9;
  config_.speculation.inner_gamma = 4;
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kOk);
  EXPECT_EQ(static_cast<std::int64_t>(recorder_.generations.size()), recorder_.last_total);
  EXPECT_FALSE(r.cases[0].tuning.has_value());
  for (std::size_t i = 1; i < r.cases.size(); ++i) {
    const CaseGammas& g = *r.cases[i].gammas;
    const CaseTuning& t = r.cases[i].tuning.value();
    EXPECT_TRUE(g.chosen);
    EXPECT_EQ(t.chosen.gamma, g.gamma);
    EXPECT_FALSE(t.own_prompts);  // there were none
    EXPECT_EQ(t.prompts, 1);
    EXPECT_GE(g.gamma, 0);
    EXPECT_LE(g.gamma, 9);
    EXPECT_LE(g.inner_gamma, 4);
    EXPECT_EQ(r.cases[i].lossless.equal_to_baseline, true);
    // What was chosen is what ran.
    EXPECT_EQ(r.cases[i].acceptance.back().tested_at.size() <=
                  static_cast<std::size_t>(g.gamma + g.inner_gamma),
              true);
  }
}

// Of the methods that were tried the one that was chosen is measured, as if it were given.
TEST_F(MeasureRun, AnAutomaticMethodIsTheRunOfThatMethod) {
  config_.methods = {Method::kAutoregressive, Method::kDraft, Method::kTriForce,
                     Method::kQuantised};
  RunConfig tuned = config_;
  tuned.auto_method = true;
  std::swap(config_, tuned);
  const RunResult r = measure();
  std::swap(config_, tuned);
  EXPECT_EQ(r.exit_code, ExitCode::kOk);
  EXPECT_EQ(static_cast<std::int64_t>(recorder_.generations.size()), recorder_.last_total);
  expect_valid_json(r);
  ASSERT_EQ(r.cases.size(), 2U);
  const CaseTuning& t = r.cases[1].tuning.value();
  ASSERT_TRUE(t.methods);
  EXPECT_EQ(t.methods->size(), 3U);
  EXPECT_EQ(t.methods->front().method, r.cases[1].method);
  EXPECT_NE(tuning_text(r.cases[1]).find(" It was chosen before "), std::string::npos);
  recorder_.generations.clear();
  config_.methods = {Method::kAutoregressive, *parse_method(r.cases[1].method)};
  const RunResult given = measure();
  EXPECT_EQ(given.cases[1].case_id, r.cases[1].case_id);
  EXPECT_EQ(given.cases[1].acceptance.back().histogram, r.cases[1].acceptance.back().histogram);
  EXPECT_EQ(given.cases[1].output.front().tokens, r.cases[1].output.front().tokens);
}

// What was chosen is the run of that tree given, in tokens and counters.
TEST_F(MeasureRun, AnAutomaticTreeIsTheRunOfThatTree) {
  config_.methods = {Method::kAutoregressive, Method::kDraft, Method::kTriForce};
  RunConfig tuned = config_;
  tuned.auto_tree = true;
  tuned.speculation.tree = DraftTree::comb(kTriedTreeLevels, 4);
  tuned.speculation.gamma = kTriedTreeLevels;
  std::swap(config_, tuned);
  const RunResult r = measure();
  std::swap(config_, tuned);
  ASSERT_EQ(r.exit_code, ExitCode::kOk);
  expect_valid_json(r);
  for (std::size_t i = 1; i < r.cases.size(); ++i) {
    const TunedSetting& chosen = r.cases[i].tuning.value().chosen;
    EXPECT_EQ(r.cases[i].gammas->gamma, chosen.gamma);
    EXPECT_EQ(r.cases[i].lossless.equal_to_baseline, true);
    if (chosen.gamma == 0) continue;
    RunConfig given = config_;
    given.methods = {Method::kAutoregressive, config_.methods[i]};
    given.speculation.gamma = chosen.gamma;
    if (chosen.inner_gamma) given.speculation.inner_gamma = *chosen.inner_gamma;
    if (chosen.tree) given.speculation.tree.emplace(*chosen.tree);
    std::swap(config_, given);
    const RunResult same = measure();
    std::swap(config_, given);
    EXPECT_EQ(same.cases[1].acceptance.back().histogram, r.cases[i].acceptance.back().histogram);
    EXPECT_EQ(same.cases[1].acceptance.back().acceptance_vector.has_value(),
              chosen.tree.has_value());
  }
}

// Everything is left to auto: what was chosen is among what may be, was found on prompts of its
// own, and the run is that of the same settings given, in tokens, counters, identity and traffic.
TEST_F(MeasureRun, WhatIsTunedIsTheRunOfTheSettingsChosen) {
  const std::vector<std::vector<Token>> tuning = {toy_prompt(kPrompt, kVocab, 7),
                                                  toy_prompt(kPrompt, kVocab, 8)};
  for (const bool greedy : {false, true}) {
    RunConfig tuned = config_;
    tuned.methods = {Method::kAutoregressive, Method::kTriForce, Method::kStreaming};
    if (greedy) tuned.speculation.sampling.temperature = 0;
    tuned.prefill = 1024;  // of which budgets_to_try() makes 64, 128 and 256
    tuned.auto_gamma = tuned.auto_inner_gamma = tuned.auto_budget = true;
    tuned.speculation.gamma = tuned.speculation.inner_gamma = 9;
    tuned.speculation.least_budget = 64;
    tuned.speculation.budget = 128;  // as if memory had no room for 256
    input_.workload.tuning_prompts = tuning;
    std::swap(config_, tuned);
    recorder_ = {};
    const RunResult r = measure();
    std::swap(config_, tuned);
    input_.workload.tuning_prompts = {};
    ASSERT_EQ(r.exit_code, ExitCode::kOk);
    EXPECT_EQ(recorder_.target_prefills, 2 + 2);
    expect_valid_json(r);
    std::optional<std::int64_t> budget;
    for (std::size_t i = 1; i < r.cases.size(); ++i) {
      const CaseResult& c = r.cases[i];
      SCOPED_TRACE(c.name);
      const CaseTuning& t = c.tuning.value();
      EXPECT_TRUE(t.own_prompts);
      EXPECT_EQ(t.prompts, 2);
      EXPECT_EQ(t.too_large, (std::vector<std::int64_t>{256}));
      EXPECT_GT(t.seconds, 0);
      EXPECT_GT(t.tokens, 0);
      EXPECT_EQ(t.measured_ms_per_token, c.timing.ms_per_token.geometric_mean);
      EXPECT_NEAR(*t.error_pct, 100 * (t.predicted_ms_per_token / *t.measured_ms_per_token - 1),
                  1e-9);
      EXPECT_TRUE(t.chosen.budget == 64 || t.chosen.budget == 128);
      EXPECT_EQ(t.chosen.budget, r.cases[1].tuning->chosen.budget);  // one for all methods
      budget = t.chosen.budget;
      EXPECT_FALSE(t.defaults || t.overruled);  // a budget of 2048 holds the prompt
      for (const TuningPoint& p : t.surface) {
        if (p.setting.budget == t.chosen.budget) {
          EXPECT_GE(p.ms_per_token, t.predicted_ms_per_token);
        }
      }
      EXPECT_EQ(c.lossless.equal_to_baseline, true);
      // The plan has room for the largest budget that was tried.
      for (const MemTag tag : {MemTag::kKvFull, MemTag::kKvRetrieval, MemTag::kKvStreaming,
                               MemTag::kProbs, MemTag::kActivations}) {
        const auto k = static_cast<std::size_t>(tag);
        EXPECT_EQ(c.memory.planned->bytes[k], c.memory.peak->bytes[k]) << to_string(tag);
      }
    }
    // The same settings given, one method at a time, since each has its own gammas.
    for (std::size_t i = 1; i < r.cases.size(); ++i) {
      const CaseResult& c = r.cases[i];
      if (c.gammas->gamma == 0 || (c.method == "triforce" && c.gammas->inner_gamma == 0)) continue;
      SCOPED_TRACE(c.name);
      RunConfig given = tuned;
      given.methods = {*parse_method(c.method)};
      given.auto_gamma = given.auto_inner_gamma = given.auto_budget = false;
      given.speculation.budget = *budget;
      given.speculation.least_budget = 0;
      given.speculation.gamma = c.gammas->gamma;
      if (c.method == "triforce") given.speculation.inner_gamma = c.gammas->inner_gamma;
      std::swap(config_, given);
      recorder_ = {};
      const RunResult expected = measure();
      std::swap(config_, given);
      const CaseResult& want = expected.cases.at(0);
      for (std::size_t o = 0; o < want.output.size(); ++o) {
        EXPECT_EQ(c.output[o].sha256, want.output[o].sha256);
      }
      for (std::size_t l = 0; l < want.acceptance.size(); ++l) {
        EXPECT_EQ(c.acceptance[l].tested_at, want.acceptance[l].tested_at);
        EXPECT_EQ(c.acceptance[l].accepted_at, want.acceptance[l].accepted_at);
      }
      ASSERT_EQ(c.traffic.size(), want.traffic.size());
      for (std::size_t p = 0; p < want.traffic.size(); ++p) {
        EXPECT_EQ(c.traffic[p].bytes_per_pass, want.traffic[p].bytes_per_pass);
      }
    }
  }
}

// What was predicted is measured beside the defaults, and the faster one is chosen.
TEST_F(MeasureRun, TheDefaultsStayWhereTheyAreFaster) {
  config_.methods = {Method::kAutoregressive, Method::kTriForce, Method::kDraft};
  config_.auto_gamma = config_.auto_inner_gamma = true;
  config_.speculation.gamma = config_.speculation.inner_gamma = 9;
  const RunResult r = measure();
  double log_gain = 0;
  for (std::size_t i = 1; i < r.cases.size(); ++i) {
    const TuningDefaults& d = r.cases[i].tuning->defaults.value();
    EXPECT_EQ(d.setting.gamma, 6);
    if (!d.measured_ms_per_token) continue;  // they are predicted to be the fastest
    log_gain += std::log(*d.measured_ms_per_token / *d.best_measured_ms_per_token);
  }
  for (std::size_t i = 1; i < r.cases.size(); ++i) {
    const CaseTuning& t = *r.cases[i].tuning;
    SCOPED_TRACE(r.cases[i].name);
    EXPECT_EQ(t.overruled.has_value(), log_gain < 0 && t.defaults->measured_ms_per_token);
    if (log_gain < 0) {
      EXPECT_EQ(t.chosen.gamma, 6);
      EXPECT_EQ(t.chosen.inner_gamma.value_or(1), 1);
    }
    EXPECT_EQ(r.cases[i].gammas->gamma, t.chosen.gamma);
  }
}

// A stop while it is tuned leaves no case measured and no setting claimed.
TEST_F(MeasureRun, AStopEndsTuning) {
  config_.auto_gamma = true;
  int asked = 0;
  input_.hooks.stop = [&] { return ++asked > 30; };
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kInterrupted);
  for (const CaseResult& c : r.cases) {
    EXPECT_EQ(c.status, CaseStatus::kInterrupted);
    EXPECT_FALSE(c.tuning.has_value());
  }
  expect_valid_json(r);
}

// Acceptance that is simulated is not measured: the prediction has the rates given.
TEST_F(MeasureRun, TuningTakesTheRatesGiven) {
  config_.methods = {Method::kAutoregressive, Method::kTriForce};
  config_.speculation.acceptance = Acceptance::kSpeculative;
  config_.speculation.synthetic = SyntheticAcceptance{{0.9}, 0.6};
  config_.auto_gamma = config_.auto_inner_gamma = true;
  const RunResult r = measure();
  const CaseTuning& t = r.cases.at(1).tuning.value();
  for (const TuningPoint& p : t.surface) {
    if (p.outer_alpha) {
      EXPECT_NEAR(*p.outer_alpha, 0.9, 1e-9);
    }
    if (p.inner_alpha) {
      EXPECT_NEAR(*p.inner_alpha, 0.6, 1e-9);
    }
  }
}

}  // namespace
}  // namespace triforce
