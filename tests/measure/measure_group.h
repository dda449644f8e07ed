// Several configurations over one context, in one process and in several, for tests.
#pragma once
#include <array>
#include <tuple>

#include "measure/measure_run.h"
#include "report/read_json.h"

namespace triforce {

// Four configurations over one context, that differ in all that may change over a finished prompt.
class MeasureGroup : public MeasureRun {
 protected:
  MeasureGroup() {
    config_.speculation.ignore_eos = true;
    configs_.fill(config_);
    for (const RunConfig& config : configs_) {
      inputs_.push_back(input_);
      inputs_.back().facts.config = &config;
    }
    SpeculationOptions& smaller = configs_[1].speculation;
    smaller.budget = 32;
    smaller.gamma = 2;
    configs_[1].methods = {Method::kAutoregressive, Method::kTriForce, Method::kRetrieval};
    configs_[2].methods = {Method::kStreaming};
    configs_[2].speculation.sampling.temperature = 0.3F;
    configs_[3].repetitions = 1;
    configs_[3].speculation.acceptance = Acceptance::kSpeculative;
    configs_[3].speculation.selection = Selection::kAttention;
  }
  std::vector<RunResult> measure_together() {
    std::shared_ptr<Context> context;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      MeasureInput& input = inputs_[i];
      input.hooks.observer = &recorders_[i];
      input.hooks.shares_context = true;
      input.hooks.stop = [this, i] { return recorders_[i].stop; };
      input.machine.make_engine = [&, i](const RunShape& shape) {
        if (fail_building == static_cast<int>(i)) throw Error(fail_code, "Planted", "no engine");
        const SpeculationOptions& options = input.facts.config->speculation;
        RunShape run = shape;
        run.longest_prompt = kPrompt;
        if (!context) {
          context = std::make_shared<Context>(*backend_, pair_.target,
                                              context_shape(*backend_, pair_.target, options, run));
        }
        context->set_room(Context::shape_of(shape, options));
        return std::make_unique<Methods>(context, &pair_.draft, options,
                                         input.facts.config->methods);
      };
    }
    return run_measurements(inputs_);
  }
  std::array<RunConfig, 4> configs_;
  std::vector<MeasureInput> inputs_;
  std::array<Recorder, 4> recorders_;
  int fail_building = -1;
  ExitCode fail_code = ExitCode::kResources;
};

// Ended after so many prompts of cases, by a process that begins anew each time with what records
// say: the results are those of one that was never ended, and no generation is timed twice.
class Resumed : public MeasureGroup {
 protected:
  // Ends after `most` more records, of all cases together; the results of the last process.
  std::vector<RunResult> measure_some(int most) {
    int made = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      recorders_[i] = Recorder();
      const auto batch = static_cast<std::size_t>(configs_[i].batch);
      std::ptrdiff_t runs = 0;
      for (const PromptRecord& r :
           std::span(records_[i]).first(records_[i].size() / batch * batch)) {
        for (const MethodRecord& m : r.methods) runs += std::ssize(m.runs);
      }
      recorders_[i].first_index = runs / configs_[i].batch;
      inputs_[i].hooks.records = records_[i];
      fresh_[i].clear();
      inputs_[i].hooks.on_prompt = [this, i, &made, most](const PromptRecord& record) {
        // As by a journal.
        fresh_[i].push_back(read_json_text<PromptRecord>(to_json_text(record), "record", {}, "X"));
        if (++made < most) return;
        for (Recorder& r : recorders_) r.stop = true;
      };
    }
    const std::vector<RunResult> results = measure_together();
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      timed_ += std::count_if(recorders_[i].generations.begin(), recorders_[i].generations.end(),
                              [](const Generation& g) { return !g.warmup; });
      std::move(fresh_[i].begin(), fresh_[i].end(), std::back_inserter(records_[i]));
    }
    return results;
  }
  static void expect_equal(const RunResult& got, const RunResult& want) {
    EXPECT_EQ(got.exit_code, want.exit_code);
    ASSERT_EQ(got.cases.size(), want.cases.size());
    for (std::size_t c = 0; c < want.cases.size(); ++c) {
      const CaseResult &a = got.cases[c], &b = want.cases[c];
      SCOPED_TRACE(b.name);
      EXPECT_EQ(a.status, b.status);
      EXPECT_EQ(a.case_id, b.case_id);
      EXPECT_EQ(a.timing.ms_per_token.n, b.timing.ms_per_token.n);
      EXPECT_EQ(a.lossless.compared, b.lossless.compared);
      EXPECT_EQ(a.lossless.equal_to_baseline, b.lossless.equal_to_baseline);
      ASSERT_EQ(a.timing.samples.size(), b.timing.samples.size());
      for (std::size_t i = 0; i < b.timing.samples.size(); ++i) {
        const Sample &x = a.timing.samples[i], &y = b.timing.samples[i];
        EXPECT_EQ(std::tuple(x.prompt, x.repetition, x.warmup, x.seed, x.tokens_sha256),
                  std::tuple(y.prompt, y.repetition, y.warmup, y.seed, y.tokens_sha256));
        EXPECT_EQ(x.generated_in.has_value(), y.generated_in.has_value());
      }
      ASSERT_EQ(a.acceptance.size(), b.acceptance.size());
      for (std::size_t l = 0; l < b.acceptance.size(); ++l) {
        EXPECT_EQ(to_json_text(static_cast<const LevelCounters&>(a.acceptance[l])),
                  to_json_text(static_cast<const LevelCounters&>(b.acceptance[l])));
      }
      EXPECT_EQ(to_json_text(a.output), to_json_text(b.output));
      ASSERT_EQ(a.steps.size(), b.steps.size());
      for (std::size_t i = 0; i < b.steps.size(); ++i) {
        EXPECT_EQ(a.steps[i].pass, b.steps[i].pass);
        EXPECT_EQ(a.steps[i].rows, b.steps[i].rows);
        EXPECT_EQ(a.steps[i].ms.has_value(), b.steps[i].ms.has_value());
      }
    }
  }
  std::array<std::vector<PromptRecord>, 4> records_, fresh_;
  std::ptrdiff_t timed_ = 0;
};

}  // namespace triforce
