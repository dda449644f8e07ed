// A run of the measurement over the real engine and a toy pair, for tests.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cpu/cpu_backend.h"
#include "decode/toy_models.h"
#include "measure/measure.h"

namespace triforce {

inline constexpr std::int64_t kVocab = 61, kPrompt = 150, kGenerated = 40;

struct Generation {
  Method method;
  int prompt, repetition;
  bool warmup;
};

// Writes down what it is told; may stop the run before a generation.
class Recorder final : public MeasureObserver {
 public:
  void on_prefill(int, int, Pass pass, std::int64_t done, std::int64_t total) override {
    EXPECT_LE(done, total);
    ++prefill_calls;
    if (pass == Pass::kFull && done == total) ++target_prefills;
  }
  void on_first_pass(std::int64_t done, std::int64_t total) override {
    if (done == total) ++first_passes;
  }
  void on_generation(Method method, int prompt, int repetition, bool warmup, std::int64_t index,
                     std::int64_t total) override {
    EXPECT_EQ(index, first_index + static_cast<std::int64_t>(generations.size()));
    last_total = total;
    generations.push_back({method, prompt, repetition, warmup});
    if (each_generation) each_generation();
    if (stop_before && static_cast<std::size_t>(*stop_before) + 1 == generations.size()) {
      stop = true;
    }
  }
  void on_tokens(Method method, int /*prompt*/, std::span<const Token> tokens,
                 std::span<const std::uint8_t> origins) override {
    EXPECT_EQ(tokens.size(), origins.size());
    streamed[method] += static_cast<std::int64_t>(tokens.size());
  }
  void on_repetition(const std::function<RunResult()>& interim) override {
    results.push_back(interim());
  }

  // "0w1B ": prompt 0, warm-up 1, another method than autoregressive; "r": timed.
  std::string order() const {
    std::string all;
    for (const Generation& g : generations) {
      all += fmt::format("{}{}{}{} ", g.prompt, g.warmup ? "w" : "r", g.repetition,
                         g.method == Method::kAutoregressive ? "A" : "B");
    }
    return all;
  }

  std::optional<int> stop_before;
  std::function<void()> each_generation;
  bool stop = false;
  int prefill_calls = 0, target_prefills = 0, first_passes = 0;
  std::int64_t last_total = 0;
  std::int64_t first_index = 0;  // of the first generation: those of records come before
  std::vector<Generation> generations;
  std::map<Method, std::int64_t> streamed;
  std::vector<RunResult> results;
};

class MeasureRun : public ::testing::Test {
 protected:
  MeasureRun() : pair_(*backend_, DType::kF32, kVocab) {
    input_.machine.backend = backend_.get();
    input_.machine.target = &pair_.target;
    input_.machine.draft = &pair_.draft;
    input_.facts.target = model_info(pair_.target);
    input_.facts.draft = model_info(pair_.draft);
    RunConfig& c = config_;
    input_.facts.config = &c;
    c.methods = {Method::kAutoregressive, Method::kTriForce, Method::kRetrieval, Method::kStreaming,
                 Method::kDraft};
    c.speculation = toy_options();
    c.speculation.acceptance = Acceptance::kCoupled;
    c.speculation.sampling = {1.0F, 1.0F, 0};
    c.gen_len = kGenerated;
    c.repetitions = 3;
    c.warmup = 1;
    for (std::uint32_t p = 0; p < 2; ++p) prompts_.push_back(toy_prompt(kPrompt, kVocab, p));
    input_.workload.prompts = prompts_;
    input_.workload.data = {"toy", std::nullopt, 2, 0};
    input_.facts.context.build_type = "Release";
    input_.facts.context.measured_read_gbs = 10.0;
    input_.workload.decode_text = [](std::span<const Token> ids) {
      TokenText out{std::to_string(ids.size()), {}};
      out.ends.assign(ids.size(), std::ssize(out.text));
      return out;
    };
    input_.hooks.observer = &recorder_;
    input_.hooks.stop = [this] { return recorder_.stop; };
  }
  RunResult measure() {
    PlanInput plan;
    plan.target = pair_.target.config;
    plan.draft = pair_.draft.config;
    plan.dtype = pair_.target.dtype;
    plan.random_target = pair_.target.random;
    plan.random_draft = pair_.draft.random;
    plan.backend = input_.machine.backend;
    plan.options = config_.speculation;
    plan.run = {0, config_.gen_len, config_.methods, {}, config_.batch};
    for (const std::vector<Token>& prompt : input_.workload.prompts) {
      plan.run.max_prompt = std::max<std::int64_t>(plan.run.max_prompt, std::ssize(prompt));
    }
    input_.machine.plan = plan_memory(plan);
    return std::move(run_measurements({&input_, 1}).front());
  }
  std::unique_ptr<Backend> backend_ = make_cpu_backend({1, std::nullopt});
  ToyPair pair_;
  Recorder recorder_;
  std::vector<std::vector<Token>> prompts_;
  RunConfig config_;
  MeasureInput input_;
};

inline void expect_valid_json(const RunResult& r) {
  EXPECT_EQ(to_json(read_json_result(to_json(r), "result")), to_json(r));
  EXPECT_FALSE(to_table(r).empty());
  EXPECT_FALSE(to_csv(r).empty());
}

}  // namespace triforce
