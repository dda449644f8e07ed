// Several configurations over one context.
#include "measure/measure_group.h"

#include <deque>

namespace triforce {
namespace {

TEST_F(MeasureGroup, EachHasTheTokensAndCountersThatItHasAlone) {
  const std::vector<RunResult> together = measure_together();
  ASSERT_EQ(together.size(), 4U);
  int prefills = 0, first_passes = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    first_passes += recorders_[i].first_passes;
    prefills += recorders_[i].target_prefills;
    Recorder alone_recorder;
    MeasureInput alone = inputs_[i];
    alone.machine.make_engine = nullptr;
    alone.hooks.shares_context = false;
    alone.hooks.observer = &alone_recorder;
    const RunResult expected = run_measurements({&alone, 1}).front();
    ASSERT_EQ(together[i].cases.size(), expected.cases.size());
    for (std::size_t c = 0; c < expected.cases.size(); ++c) {
      const CaseResult &got = together[i].cases[c], &want = expected.cases[c];
      SCOPED_TRACE(want.name);
      EXPECT_EQ(got.status, CaseStatus::kOk);
      EXPECT_EQ(got.case_id, want.case_id);
      EXPECT_FALSE(got.memory.peak.has_value());
      EXPECT_TRUE(want.memory.peak.has_value());
      ASSERT_EQ(got.output.size(), want.output.size());
      for (std::size_t o = 0; o < want.output.size(); ++o) {
        EXPECT_EQ(got.output[o].sha256, want.output[o].sha256);
      }
      ASSERT_EQ(got.acceptance.size(), want.acceptance.size());
      for (std::size_t l = 0; l < want.acceptance.size(); ++l) {
        EXPECT_EQ(got.acceptance[l].tested_at, want.acceptance[l].tested_at);
        EXPECT_EQ(got.acceptance[l].accepted_at, want.acceptance[l].accepted_at);
      }
    }
    // A warm-up on each of the two prompts instead of one.
    const auto methods = static_cast<std::int64_t>(configs_[i].methods.size());
    EXPECT_EQ(recorders_[i].last_total, alone_recorder.last_total + methods);
    EXPECT_EQ(recorders_[i].last_total, std::ssize(recorders_[i].generations));
    EXPECT_EQ(recorders_[i].streamed, alone_recorder.streamed);
    for (const CaseResult& c : together[i].cases) {
      ASSERT_TRUE(c.timing.samples.front().warmup);
      std::map<int, std::int64_t> tokens;  // of the warm-up, by prompt
      for (const Sample& s : c.timing.samples) {
        if (s.warmup) tokens[s.prompt] = s.tokens;
      }
      EXPECT_EQ(tokens, (std::map<int, std::int64_t>{{0, kGenerated}, {1, 32}}));
    }
  }
  EXPECT_EQ(prefills, 2);  // one a prompt
  EXPECT_EQ(first_passes, 1);
}

// Prompts that begin as those of another configuration go on from there, shorter ones first.
TEST_F(MeasureGroup, LongerPromptsGoOnFromShorterOnes) {
  std::vector<std::vector<Token>> shorter = prompts_;
  for (std::vector<Token>& prompt : shorter) prompt.resize(prompt.size() / 2);
  for (const std::size_t i : {1U, 3U}) inputs_[i].workload.prompts = shorter;
  const std::vector<RunResult> together = measure_together();
  for (std::size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    // Of each prompt and length one of two configurations fills the full cache.
    EXPECT_EQ(recorders_[i].target_prefills, i < 2 ? 2 : 0);
    MeasureInput alone = inputs_[i];
    alone.machine.make_engine = nullptr;
    alone.hooks.shares_context = false;
    alone.hooks.observer = nullptr;
    const RunResult expected = run_measurements({&alone, 1}).front();
    for (std::size_t c = 0; c < expected.cases.size(); ++c) {
      const CaseResult &got = together[i].cases[c], &want = expected.cases[c];
      SCOPED_TRACE(want.name);
      EXPECT_EQ(got.status, CaseStatus::kOk);
      ASSERT_EQ(got.output.size(), want.output.size());
      for (std::size_t o = 0; o < want.output.size(); ++o) {
        EXPECT_EQ(got.output[o].sha256, want.output[o].sha256);
      }
      ASSERT_EQ(got.acceptance.size(), want.acceptance.size());
      for (std::size_t l = 0; l < want.acceptance.size(); ++l) {
        EXPECT_EQ(got.acceptance[l].accepted_at, want.acceptance[l].accepted_at);
      }
    }
  }
}

// The baselines of the first two sample alike; that of the fourth accepts otherwise, and at another
// temperature nothing is shared either.
TEST_F(MeasureGroup, EqualBaselinesAreGeneratedOnce) {
  configs_[2].methods = {Method::kAutoregressive, Method::kStreaming};
  configs_[1].repetitions = configs_[0].repetitions + 1;
  const std::vector<RunResult> results = measure_together();
  const auto baseline_of = [&](std::size_t i) -> const CaseResult& {
    const auto& cases = results[i].cases;
    return *std::find_if(cases.begin(), cases.end(),
                         [](const CaseResult& c) { return c.method == "ar"; });
  };
  std::map<std::tuple<int, int, bool>, Sample> first;
  for (const Sample& s : baseline_of(0).timing.samples) {
    EXPECT_FALSE(s.generated_in);
    first[{s.prompt, s.repetition, s.warmup}] = s;
  }
  std::size_t taken = 0;
  for (const Sample& s : baseline_of(1).timing.samples) {
    const auto same = first.find({s.prompt, s.repetition, s.warmup});
    ASSERT_EQ(s.generated_in.has_value(), same != first.end());
    if (!s.generated_in) continue;
    ++taken;
    EXPECT_EQ(*s.generated_in, results[0].run_id);
    EXPECT_EQ(s.decode_ms, same->second.decode_ms);
    EXPECT_EQ(s.tokens_sha256, same->second.tokens_sha256);
  }
  EXPECT_EQ(taken, first.size());
  EXPECT_GT(baseline_of(1).timing.samples.size(), taken);  // the repetition more is its own
  for (const std::size_t i : {2U, 3U}) {
    for (const Sample& s : baseline_of(i).timing.samples) EXPECT_FALSE(s.generated_in) << i;
  }
  for (const CaseResult& c : results[1].cases) {
    EXPECT_TRUE(c.lossless.mode == LosslessMode::kBaseline || c.lossless.compared > 0);
    if (c.method == "ar") continue;
    for (const Sample& s : c.timing.samples) EXPECT_FALSE(s.generated_in);
  }
}

TEST_F(MeasureGroup, WhatFailsFailsAlone) {
  fail_building = 0;
  const std::vector<RunResult> results = measure_together();
  EXPECT_EQ(results[0].exit_code, ExitCode::kResources);
  for (const CaseResult& c : results[0].cases) EXPECT_EQ(c.status, CaseStatus::kOom);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(results[i].exit_code, ExitCode::kOk);
    for (const CaseResult& c : results[i].cases) EXPECT_EQ(c.status, CaseStatus::kOk);
  }
  EXPECT_EQ(recorders_[1].target_prefills, 2);  // it came first instead
}

// After a fault of the device nothing that it computes counts.
TEST_F(MeasureGroup, AFaultOfTheDeviceEndsAll) {
  fail_building = 1;
  fail_code = ExitCode::kDevice;
  const std::vector<RunResult> results = measure_together();
  EXPECT_EQ(results[1].exit_code, ExitCode::kDevice);
  EXPECT_TRUE(recorders_[2].generations.empty());
  for (const RunResult& r : {results[0], results[2], results[3]}) {
    for (const CaseResult& c : r.cases) EXPECT_EQ(c.status, CaseStatus::kInterrupted);
  }
}

TEST_F(Resumed, IsWhatNobodyStopped) {
  prompts_.push_back(toy_prompt(kPrompt, kVocab, 2));
  for (MeasureInput& input : inputs_) {
    input.workload.prompts = prompts_;
    input.workload.data.n_prompts = 3;
  }
  const std::vector<RunResult> expected = measure_together();
  std::ptrdiff_t timed = 0;
  for (const Recorder& r : recorders_) {
    timed += std::count_if(r.generations.begin(), r.generations.end(),
                           [](const Generation& g) { return !g.warmup; });
  }
  std::vector<RunResult> results;
  // A few records each: every place in the order of prompts and cases is one where it ends.
  for (const int most : {1, 2, 3, 4, 1, 100}) {
    results = measure_some(most);
  }
  ASSERT_EQ(results.size(), 4U);
  EXPECT_EQ(timed_, timed);
  for (std::size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(records_[i].size(), 3U);
    expect_equal(results[i], expected[i]);
  }
}

// A batch of which some prompts have no record, as after a crash, is measured again.
TEST_F(Resumed, ABatchIsMeasuredWhole) {
  for (std::uint32_t p = 2; p < 4; ++p) prompts_.push_back(toy_prompt(kPrompt, kVocab, p));
  for (RunConfig& c : configs_) c.batch = 2;
  for (MeasureInput& input : inputs_) {
    input.workload.prompts = prompts_;
    input.workload.data.n_prompts = 4;
  }
  const std::vector<RunResult> expected = measure_together();
  measure_some(11);
  std::size_t missing = 0;
  for (std::vector<PromptRecord>& records : records_) {
    if (records.size() < 4) continue;
    ++missing;
    records.pop_back();
  }
  EXPECT_GT(missing, 0U);
  const std::vector<RunResult> results = measure_some(100);
  for (std::size_t i = 0; i < 4; ++i) expect_equal(results[i], expected[i]);
}

// What a row is made of is the records and nothing else: where all are there, nothing is generated
// and the figures are the same to the last bit.
TEST_F(Resumed, OfAllPromptsIsTheSameResult) {
  std::vector<RunResult> first = measure_some(100), again = measure_some(100);
  for (std::size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(recorders_[i].generations.empty());
    EXPECT_EQ(recorders_[i].prefill_calls, 0);
    EXPECT_EQ(again[i].run_id, first[i].run_id);
    for (RunResult* r : {&first[i], &again[i]}) {
      r->context.end.reset();
      r->context.measured_read_gbs_after.reset();
    }
    EXPECT_EQ(to_json(again[i]), to_json(first[i]));
  }
}

TEST_F(Resumed, OfOtherThreadsBeginsAnew) {
  measure_some(5);
  for (std::size_t i = 0; i < 4; ++i) {
    inputs_[i].facts.context.threads = 7;
    ASSERT_FALSE(records_[i].empty());
    inputs_[i].hooks.records = records_[i];
    recorders_[i] = Recorder();
    fresh_[i].clear();
    inputs_[i].hooks.on_prompt = [this, i](const PromptRecord& r) { fresh_[i].push_back(r); };
  }
  measure_together();
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(fresh_[i].size(), 2U);
    EXPECT_EQ(fresh_[i].front().prompt, 0);
  }
}

TEST_F(Resumed, SaysThatProcessesWentOn) {
  measure_some(5);
  for (MeasureInput& input : inputs_) input.facts.context.measured_read_gbs = 2.0;  // 10 before
  const RunResult r = measure_some(100).back();  // cut off after its first prompt
  const Validity& v = r.cases.front().validity;
  EXPECT_EQ(std::count(v.notes.begin(), v.notes.end(),
                       "measured by 2 processes: it was stopped and went on"),
            1);
  EXPECT_EQ(std::count(v.reasons.begin(), v.reasons.end(),
                       "the memory's read bandwidth was 2 to 10 GB/s where processes began"),
            1);
}

// Other work while one case is measured says nothing of the others.
TEST_F(MeasureGroup, EachSaysWhatDisturbedItself) {
  LoadTimes now{.processors = 2};
  std::deque<LoadMonitor> monitors;
  for (std::size_t i = 0; i < 4; ++i) {
    inputs_[i].hooks.load = &monitors.emplace_back([&now] { return std::vector{now}; });
    inputs_[i].facts.context.threads = 2;
    recorders_[i].each_generation = [&now, share = 0.25 * static_cast<double>(i)] {
      now.busy += 40 * share;
      now.idle += 40 * (1 - share);
    };
  }
  const std::vector<RunResult> results = measure_together();
  for (std::size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(results[i].context.load);
    EXPECT_NEAR(results[i].context.load->other, 0.5 * static_cast<double>(i), 1e-9);
    for (const CaseResult& c : results[i].cases) {
      const auto is_of_others = [](const std::string& reason) {
        return reason.starts_with("other processes kept ");
      };
      const std::vector<std::string>& reasons = c.validity.reasons;
      EXPECT_EQ(std::any_of(reasons.begin(), reasons.end(), is_of_others), i > 0);
    }
  }
}

TEST_F(MeasureGroup, EachHasItsOwnTimeLimit) {
  inputs_[0].hooks.timeout_s = 1e-9;
  const std::vector<RunResult> results = measure_together();
  for (const CaseResult& c : results[0].cases) EXPECT_EQ(c.status, CaseStatus::kTimeout);
  for (const CaseResult& c : results[1].cases) EXPECT_EQ(c.status, CaseStatus::kOk);
}

}  // namespace
}  // namespace triforce
