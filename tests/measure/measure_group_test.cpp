// Several configurations over one context.
#include <array>
#include <deque>
#include <tuple>

#include "measure/measure_run.h"

namespace triforce {
namespace {

// Four configurations over one context, that differ in all that may change over a finished prompt.
class MeasureGroup : public MeasureRun {
 protected:
  MeasureGroup() {
    input_.config.speculation.ignore_eos = true;
    for (int i = 0; i < 4; ++i) inputs_.push_back(input_);
    SpeculationOptions& smaller = inputs_[1].config.speculation;
    smaller.budget = 32;
    smaller.gamma = 2;
    inputs_[1].config.methods = {Method::kAutoregressive, Method::kTriForce, Method::kRetrieval};
    inputs_[2].config.methods = {Method::kStreaming};
    inputs_[2].config.speculation.sampling.temperature = 0.3F;
    inputs_[3].config.repetitions = 1;
    inputs_[3].config.speculation.acceptance = Acceptance::kSpeculative;
    inputs_[3].config.speculation.selection = Selection::kAttention;
  }
  std::vector<RunResult> measure_together() {
    std::shared_ptr<Context> context;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      MeasureInput& input = inputs_[i];
      input.observer = &recorders_[i];
      input.stop = [this, i] { return recorders_[i].stop; };
      input.make_engine = [&, i](const RunShape& shape) {
        if (fail_building == static_cast<int>(i)) throw Error(fail_code, "Planted", "no engine");
        if (!context) {
          context = std::make_shared<Context>(
              *backend_, pair_.target,
              context_shape(*backend_, pair_.target, input.config.speculation, shape));
        }
        return make_engine(context, &pair_.draft, input.config.speculation, input.config.methods);
      };
    }
    return run_measurements(inputs_);
  }
  std::vector<MeasureInput> inputs_;
  std::array<Recorder, 4> recorders_;
  int fail_building = -1;
  ExitCode fail_code = ExitCode::kResources;
};

TEST_F(MeasureGroup, EachHasTheTokensAndCountersThatItHasAlone) {
  const std::vector<RunResult> together = measure_together();
  ASSERT_EQ(together.size(), 4U);
  int prefills = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    prefills += recorders_[i].target_prefills;
    Recorder alone_recorder;
    MeasureInput alone = inputs_[i];
    alone.make_engine = nullptr;
    alone.observer = &alone_recorder;
    const RunResult expected = run_measurement(alone);
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
    const auto methods = static_cast<std::int64_t>(inputs_[i].config.methods.size());
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
}

// The baselines of the first two sample alike; that of the fourth accepts otherwise, and at another
// temperature nothing is shared either.
TEST_F(MeasureGroup, EqualBaselinesAreGeneratedOnce) {
  inputs_[2].config.methods = {Method::kAutoregressive, Method::kStreaming};
  inputs_[1].config.repetitions = inputs_[0].config.repetitions + 1;
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

// Other work while one case is measured says nothing of the others.
TEST_F(MeasureGroup, EachSaysWhatDisturbedItself) {
  LoadTimes now{.processors = 2};
  std::deque<LoadMonitor> monitors;
  for (std::size_t i = 0; i < 4; ++i) {
    inputs_[i].load = &monitors.emplace_back([&now] { return std::vector{now}; });
    inputs_[i].context.threads = 2;
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
  inputs_[0].config.timeout_s = 1e-9;
  const std::vector<RunResult> results = measure_together();
  for (const CaseResult& c : results[0].cases) EXPECT_EQ(c.status, CaseStatus::kTimeout);
  for (const CaseResult& c : results[1].cases) EXPECT_EQ(c.status, CaseStatus::kOk);
}

}  // namespace
}  // namespace triforce
