// The measurement over the real engine and a toy pair.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/forwarding_backend.h"
#include "core/strict_json.h"
#include "cpu/cpu_backend.h"
#include "decode/toy_models.h"
#include "measure/measure.h"
#include "model/retrieval_cache.h"

namespace triforce {
namespace {

constexpr std::int64_t kVocab = 61, kPrompt = 150, kGenerated = 40;

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
  void on_generation(Method method, int prompt, int repetition, bool warmup, std::int64_t index,
                     std::int64_t total) override {
    EXPECT_EQ(index, static_cast<std::int64_t>(generations.size()));
    last_total = total;
    generations.push_back({method, prompt, repetition, warmup});
    if (each_generation) each_generation();
    if (stop_before && static_cast<std::size_t>(*stop_before) + 1 == generations.size()) {
      stop = true;
    }
  }
  void on_tokens(Method method, std::span<const Token> tokens,
                 std::span<const std::uint8_t> origins) override {
    EXPECT_EQ(tokens.size(), origins.size());
    streamed[method] += static_cast<std::int64_t>(tokens.size());
  }
  void on_repetition(const std::function<RunResult()>& interim) override {
    results.push_back(interim());
  }

  std::optional<int> stop_before;
  std::function<void()> each_generation;
  bool stop = false;
  int prefill_calls = 0, target_prefills = 0;
  std::int64_t last_total = 0;
  std::vector<Generation> generations;
  std::map<Method, std::int64_t> streamed;
  std::vector<RunResult> results;
};

class MeasureRun : public ::testing::Test {
 protected:
  MeasureRun() : pair_(*backend_, DType::kF32, kVocab) {
    input_.backend = backend_.get();
    input_.target = &pair_.target;
    input_.draft = &pair_.draft;
    input_.target_info = model_info(pair_.target);
    input_.draft_info = model_info(pair_.draft);
    RunConfig& c = input_.config;
    c.methods = {Method::kAutoregressive, Method::kTriForce, Method::kRetrieval, Method::kStreaming,
                 Method::kDraft};
    c.speculation = toy_options();
    c.speculation.acceptance = Acceptance::kCoupled;
    c.speculation.sampling = {1.0F, 1.0F, 0};
    c.gen_len = kGenerated;
    c.repetitions = 3;
    c.warmup = 1;
    for (std::uint32_t p = 0; p < 2; ++p) prompts_.push_back(toy_prompt(kPrompt, kVocab, p));
    input_.prompts = prompts_;
    input_.data = {"toy", std::nullopt, 2, 0};
    input_.context.build_type = "Release";
    input_.context.measured_read_gbs = 10.0;
    input_.decode_text = [](std::span<const Token> ids) {
      TokenText out{std::to_string(ids.size()), {}};
      out.ends.assign(ids.size(), std::ssize(out.text));
      return out;
    };
    input_.observer = &recorder_;
    input_.stop = [this] { return recorder_.stop; };
  }
  RunResult measure() {
    PlanInput plan;
    plan.target = pair_.target.config;
    plan.draft = pair_.draft.config;
    plan.dtype = pair_.target.dtype;
    plan.random_target = pair_.target.random;
    plan.random_draft = pair_.draft.random;
    plan.backend = input_.backend;
    plan.options = input_.config.speculation;
    plan.run = {0, input_.config.gen_len, input_.config.methods};
    for (const std::vector<Token>& prompt : input_.prompts) {
      plan.run.max_prompt = std::max<std::int64_t>(plan.run.max_prompt, std::ssize(prompt));
    }
    input_.plan = plan_memory(plan);
    return run_measurement(input_);
  }
  std::unique_ptr<Backend> backend_ = make_cpu_backend({1, std::nullopt});
  ToyPair pair_;
  Recorder recorder_;
  std::vector<std::vector<Token>> prompts_;
  MeasureInput input_;
};

void expect_valid_json(const RunResult& r) {
  EXPECT_EQ(to_json(read_json_result(to_json(r), "result")), to_json(r));
  EXPECT_FALSE(to_table(r).empty());
  EXPECT_FALSE(to_csv(r).empty());
}

TEST_F(MeasureRun, CoupledStreamsAreEqualAndEverythingIsMeasured) {
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kOk);
  ASSERT_EQ(r.cases.size(), 5U);
  for (const CaseResult& c : r.cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(c.status, CaseStatus::kOk);
    EXPECT_EQ(c.timing.ms_per_token.n, 6);
    EXPECT_EQ(c.timing.samples.size(), 7U);  // and a warm-up
    EXPECT_TRUE(c.timing.ms_per_token.ci95_low && c.timing.ms_per_token.geometric_mean);
    EXPECT_LE(*c.timing.ms_per_token.ci95_low, *c.timing.ms_per_token.geometric_mean);
    EXPECT_GE(*c.timing.ms_per_token.ci95_high, *c.timing.ms_per_token.geometric_mean);
    EXPECT_EQ(c.timing.ms_per_token.ci95_over, IntervalOver::kPrompts);
    EXPECT_GE(*c.timing.end_to_end_ms, *c.timing.preparation_ms);
    EXPECT_GE(*c.timing.preparation_ms, *r.cases[0].timing.preparation_ms);
    EXPECT_TRUE(c.timing.noise_pct && c.timing.prefill_ms);
    EXPECT_GT(*c.timing.prefill_ms, 0);
    ASSERT_EQ(c.output.size(), 2U);
    EXPECT_EQ(c.output[1].prompt, 1);
    EXPECT_EQ(c.output[1].tokens, r.cases[0].output[1].tokens);
    EXPECT_EQ(c.output[0].tokens.size(), static_cast<std::size_t>(kGenerated));
    EXPECT_EQ(c.output[0].text, std::to_string(kGenerated));
    EXPECT_EQ(std::ssize(c.output[0].text_ends), kGenerated);
    EXPECT_EQ(c.validity.reasons.front(), "random weights");
    // The phases of all rounds add up to the time of the decode loop.
    double rounds = 0, ms = 0, phases = 0;
    for (const Sample& s : c.timing.samples) {
      if (s.warmup) continue;
      rounds += static_cast<double>(s.rounds);
      ms += s.decode_ms;
    }
    for (const double phase : *c.phases_ms_per_round) phases += phase;
    EXPECT_NEAR(phases * rounds, ms, 0.2 * ms);
    EXPECT_EQ(c.memory.peak->total() > 0, true);
    // The toy weights come with RoPE tables of another length than a run would make.
    for (auto tag = static_cast<std::size_t>(MemTag::kKvFull);
         tag < static_cast<std::size_t>(MemTag::kWorkspace); ++tag) {
      EXPECT_EQ(c.memory.planned->bytes[tag], c.memory.peak->bytes[tag])
          << to_string(static_cast<MemTag>(tag));
    }
    if (c.name == "ar") continue;
    EXPECT_EQ(c.lossless.mode, LosslessMode::kTokens);
    EXPECT_EQ(c.lossless.equal_to_baseline, true);
    EXPECT_EQ(c.lossless.compared, 6);
    EXPECT_TRUE(c.speedup && c.speedup->value && c.speedup->ci95_low && c.speedup->ci95_high);
    EXPECT_TRUE(c.speedup && c.speedup->predicted && c.speedup->end_to_end);
    EXPECT_TRUE(c.speedup->end_to_end_ci95_low && c.speedup->end_to_end_ci95_high);
    for (const LevelResult& level : c.acceptance) EXPECT_TRUE(level.ci95.has_value());
    EXPECT_EQ(c.acceptance.size(), c.name == "triforce" ? 2U : 1U);
    EXPECT_EQ(c.gammas->gamma, 6);
  }
  expect_valid_json(r);
}

TEST_F(MeasureRun, OrderPrefillsAndSeeds) {
  input_.config.methods = {Method::kAutoregressive, Method::kRetrieval};
  const RunResult r = measure();
  std::string order;
  for (const Generation& g : recorder_.generations) {
    order += fmt::format("{}{}{}{} ", g.prompt, g.warmup ? "w" : "r", g.repetition,
                         g.method == Method::kAutoregressive ? "A" : "B");
  }
  EXPECT_EQ(order, "0w0A 0w0B 0r0A 0r0B 0r1B 0r1A 0r2A 0r2B 1r0A 1r0B 1r1B 1r1A 1r2A 1r2B ");
  EXPECT_EQ(recorder_.last_total, 14);
  EXPECT_GE(recorder_.prefill_calls, 2);
  // Both methods of a repetition share its seed; repetitions differ.
  std::set<std::uint64_t> seeds;
  for (std::size_t i = 0; i < r.cases[0].timing.samples.size(); ++i) {
    EXPECT_EQ(r.cases[0].timing.samples[i].prompt, r.cases[1].timing.samples[i].prompt);
    EXPECT_EQ(r.cases[0].timing.samples[i].seed, r.cases[1].timing.samples[i].seed);
    seeds.insert(r.cases[0].timing.samples[i].seed);
  }
  EXPECT_EQ(seeds, (std::set<std::uint64_t>{42, 43, 44}));
  // The warm-up repeats the work of the first repetition, and gives its tokens.
  EXPECT_EQ(r.cases[1].timing.samples[0].tokens_sha256, r.cases[1].timing.samples[1].tokens_sha256);
  EXPECT_NE(r.cases[1].timing.samples[1].tokens_sha256, r.cases[1].timing.samples[2].tokens_sha256);
  // An interim result after every repetition of both prompts, all of them whole but unfinished.
  ASSERT_EQ(recorder_.results.size(), 6U);
  EXPECT_EQ(recorder_.results[0].cases[0].timing.ms_per_token.n, 1);
  EXPECT_EQ(recorder_.results[4].cases[1].timing.ms_per_token.n, 5);
  EXPECT_EQ(recorder_.results[5].cases[1].status, CaseStatus::kOk);
  EXPECT_EQ(recorder_.results[0].cases[0].status, CaseStatus::kInterrupted);
  EXPECT_FALSE(recorder_.results[0].context.end.has_value());
  EXPECT_EQ(recorder_.results[0].run_id, r.run_id);
  EXPECT_TRUE(r.context.end.has_value());
  // Tokens of the first generation of each method on each prompt.
  EXPECT_EQ(recorder_.streamed[Method::kAutoregressive], 2 * kGenerated);
  EXPECT_EQ(recorder_.streamed[Method::kRetrieval], 2 * kGenerated);
}

// A run's peaks are its own, whatever the process ran before.
TEST_F(MeasureRun, PeaksAreThoseOfTheRun) {
  input_.observer = nullptr;
  input_.config.repetitions = 1;
  input_.config.warmup = 0;
  for (const std::int64_t budget : {128, 64}) {
    input_.config.speculation.budget = budget;
    const RunResult r = measure();
    ASSERT_EQ(r.exit_code, ExitCode::kOk);
    const MemoryResult& m = r.cases[0].memory;
    for (auto tag = static_cast<std::size_t>(MemTag::kKvFull);
         tag < static_cast<std::size_t>(MemTag::kWorkspace); ++tag) {
      EXPECT_EQ(m.planned->bytes[tag], m.peak->bytes[tag]) << budget << ' ' << tag;
    }
  }
}

TEST_F(MeasureRun, GreedyStreamsAreEqual) {
  input_.config.speculation.acceptance = Acceptance::kSpeculative;
  input_.config.speculation.sampling.temperature = 0;
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kOk);
  for (std::size_t i = 1; i < r.cases.size(); ++i) {
    EXPECT_EQ(r.cases[i].lossless.equal_to_baseline, true) << r.cases[i].name;
  }
}

// What is recorded is what there was, and recording changes nothing that is measured.
TEST_F(MeasureRun, WhatIsRecorded) {
  const RunResult plain = measure();
  for (const CaseResult& c : plain.cases) EXPECT_TRUE(c.after_prompt.empty());
  input_.config.record = {true, true, true};
  recorder_ = {};
  const RunResult r = measure();
  Context context(*backend_, pair_.target, Context::shape_of({kPrompt, kGenerated, {}}));
  Methods methods(context, nullptr, input_.config.speculation, std::vector{Method::kRetrieval});
  for (int p = 0; p < 2; ++p) {
    context.prefill(input_.prompts[static_cast<std::size_t>(p)], nullptr, nullptr);
    methods.prefill(nullptr, nullptr);
    const std::vector<std::int32_t> ids = methods.retrieval_cache()->selected_chunks();
    const std::vector<float> probs = methods.probs_after_prompt();
    for (const CaseResult& c : r.cases) {
      SCOPED_TRACE(c.name);
      ASSERT_EQ(c.after_prompt.size(), 2U);
      const AfterPrompt& a = c.after_prompt[static_cast<std::size_t>(p)];
      EXPECT_EQ(a.prompt, p);
      ASSERT_TRUE(a.top_tokens && a.top_probs);
      EXPECT_EQ(a.top_tokens->size(), static_cast<std::size_t>(kVocab));  // fewer than 64
      double sum = 0;
      for (std::size_t i = 0; i < a.top_probs->size(); ++i) {
        EXPECT_EQ((*a.top_probs)[i], probs[static_cast<std::size_t>((*a.top_tokens)[i])]);
        EXPECT_LE((*a.top_probs)[i], (*a.top_probs)[i == 0 ? 0 : i - 1]);
        sum += (*a.top_probs)[i];
      }
      EXPECT_NEAR(sum, 1, 1e-5);
      ASSERT_EQ(a.chunks.has_value(), c.name == "triforce" || c.name == "retrieval");
      if (!a.chunks) continue;
      std::vector<std::int32_t> flat;
      ASSERT_EQ(a.chunks->size(), static_cast<std::size_t>(pair_.target.config.layers));
      for (const auto& layer : *a.chunks) {
        ASSERT_EQ(layer.size(), static_cast<std::size_t>(pair_.target.config.kv_heads));
        for (const auto& head : layer) {
          EXPECT_EQ(head.size(), 8U);  // a budget of 64 tokens
          EXPECT_EQ(head.front(), 0);
          flat.insert(flat.end(), head.begin(), head.end());
        }
      }
      EXPECT_EQ(flat, ids);
    }
  }
  for (std::size_t i = 0; i < r.cases.size(); ++i) {
    const CaseResult& c = r.cases[i];
    SCOPED_TRACE(c.name);
    EXPECT_EQ(c.case_id, plain.cases[i].case_id);
    ASSERT_EQ(c.output.size(), 6U);  // three repetitions of two prompts
    const std::vector<Sample>& samples = c.timing.samples;
    for (std::size_t s = 0; s < samples.size(); ++s) {
      EXPECT_EQ(samples[s].tokens_sha256, plain.cases[i].timing.samples[s].tokens_sha256);
      if (s == 0) continue;  // the warm-up
      EXPECT_EQ(c.output[s - 1].prompt, samples[s].prompt);
      EXPECT_EQ(c.output[s - 1].repetition, samples[s].repetition);
      EXPECT_EQ(c.output[s - 1].sha256, samples[s].tokens_sha256);
    }
  }
  expect_valid_json(r);
}

TEST_F(MeasureRun, SpeculativeSamplingIsNotComparedTokenByToken) {
  input_.config.speculation.acceptance = Acceptance::kSpeculative;
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kOk);
  EXPECT_EQ(r.cases[1].lossless.mode, LosslessMode::kDistribution);
  EXPECT_FALSE(r.cases[1].lossless.equal_to_baseline.has_value());
}

TEST_F(MeasureRun, AStopKeepsFinishedRepetitions) {
  input_.config.methods = {Method::kAutoregressive, Method::kRetrieval};
  recorder_.stop_before = 5;  // after 0w0A 0w0B 0r0A 0r0B 0r1B
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kInterrupted);
  EXPECT_EQ(r.cases[0].status, CaseStatus::kInterrupted);
  EXPECT_EQ(r.cases[0].timing.ms_per_token.n, 1);
  EXPECT_EQ(r.cases[1].timing.ms_per_token.n, 2);
  EXPECT_EQ(r.cases[1].lossless.compared, 1);
  EXPECT_TRUE(r.cases[1].speedup.has_value());
  EXPECT_EQ(recorder_.generations.size(), 6U);
  expect_valid_json(r);
}

TEST_F(MeasureRun, ATimeoutEndsTheRun) {
  input_.config.timeout_s = 1e-6;
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kInconclusive);
  for (const CaseResult& c : r.cases) {
    EXPECT_EQ(c.status, CaseStatus::kTimeout);
    EXPECT_EQ(c.timing.ms_per_token.n, 0);
  }
  expect_valid_json(r);
}

TEST_F(MeasureRun, AutomaticGammasAreReported) {
  input_.config.methods = {Method::kAutoregressive, Method::kTriForce, Method::kDraft};
  input_.config.auto_gamma = input_.config.auto_inner_gamma = true;
  input_.config.speculation.gamma = 9;
  input_.config.speculation.inner_gamma = 4;
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

// Everything is left to auto: what was chosen is among what may be, was found on prompts of its
// own, and the run is that of the same settings given, in tokens, counters, identity and traffic.
TEST_F(MeasureRun, WhatIsTunedIsTheRunOfTheSettingsChosen) {
  const std::vector<std::vector<Token>> tuning = {toy_prompt(kPrompt, kVocab, 7),
                                                  toy_prompt(kPrompt, kVocab, 8)};
  for (const bool greedy : {false, true}) {
    MeasureInput tuned = input_;
    tuned.config.methods = {Method::kAutoregressive, Method::kTriForce, Method::kStreaming};
    if (greedy) tuned.config.speculation.sampling.temperature = 0;
    tuned.config.prefill = 1024;  // of which budgets_to_try() makes 64, 128 and 256
    tuned.config.auto_gamma = tuned.config.auto_inner_gamma = tuned.config.auto_budget = true;
    tuned.config.speculation.gamma = tuned.config.speculation.inner_gamma = 9;
    tuned.config.speculation.least_budget = 64;
    tuned.config.speculation.budget = 128;  // as if memory had no room for 256
    tuned.tuning_prompts = tuning;
    std::swap(input_, tuned);
    recorder_ = {};
    const RunResult r = measure();
    std::swap(input_, tuned);
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
      MeasureInput given = input_;
      given.config = tuned.config;
      given.config.methods = {*parse_method(c.method)};
      given.config.auto_gamma = given.config.auto_inner_gamma = given.config.auto_budget = false;
      given.config.speculation.budget = *budget;
      given.config.speculation.least_budget = 0;
      given.config.speculation.gamma = c.gammas->gamma;
      if (c.method == "triforce") given.config.speculation.inner_gamma = c.gammas->inner_gamma;
      std::swap(input_, given);
      recorder_ = {};
      const RunResult expected = measure();
      std::swap(input_, given);
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
  input_.config.methods = {Method::kAutoregressive, Method::kTriForce, Method::kDraft};
  input_.config.auto_gamma = input_.config.auto_inner_gamma = true;
  input_.config.speculation.gamma = input_.config.speculation.inner_gamma = 9;
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
  input_.config.auto_gamma = true;
  int asked = 0;
  input_.stop = [&] { return ++asked > 30; };
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
  input_.config.methods = {Method::kAutoregressive, Method::kTriForce};
  input_.config.speculation.acceptance = Acceptance::kSpeculative;
  input_.config.speculation.synthetic = SyntheticAcceptance{0.9, 0.6};
  input_.config.auto_gamma = input_.config.auto_inner_gamma = true;
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

// Spoils the logits of passes of more than one row, or refuses to make probs of them at all.
class FaultyBackend final : public ForwardingBackend {
 public:
  enum class Fault : std::uint8_t { kNaN, kNoMemory, kWrongArgmax };
  FaultyBackend(Backend& to, Fault fault) : ForwardingBackend(to), fault_(fault) {}
  void do_to_probs(TensorView logits, const SamplingParams& params, TensorView probs) override {
    if (probs.shape[0] > 1 && fault_ == Fault::kNaN) {
      logits.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    }
    if (probs.shape[0] > 1 && fault_ == Fault::kNoMemory) throw_resources("OutOfMemory", "no room");
    if (probs.shape[0] > 1 && fault_ == Fault::kWrongArgmax) {
      std::span row(logits.as<float>(), static_cast<std::size_t>(logits.shape[1]));
      const auto top = std::max_element(row.begin(), row.end());
      const float largest = std::exchange(*top, std::numeric_limits<float>::lowest());
      margins.push_back(largest - *std::max_element(row.begin(), row.end()));
    }
    ForwardingBackend::do_to_probs(logits, params, probs);
  }
  std::vector<float> margins;  // between the two largest logits, before kWrongArgmax spoiled them

 private:
  Fault fault_;
};

TEST_F(MeasureRun, AFailingMethodLeavesTheOthersTheirResults) {
  for (const auto& [fault, status, code] :
       {std::tuple{FaultyBackend::Fault::kNaN, CaseStatus::kError, ExitCode::kNumeric},
        {FaultyBackend::Fault::kNoMemory, CaseStatus::kOom, ExitCode::kResources}}) {
    FaultyBackend faulty(*backend_, fault);
    input_.backend = &faulty;
    input_.config.methods = {Method::kAutoregressive, Method::kRetrieval};
    recorder_ = {};
    const RunResult r = measure();
    EXPECT_EQ(r.exit_code, code);
    EXPECT_EQ(r.cases[0].status, CaseStatus::kOk);
    EXPECT_EQ(r.cases[0].timing.ms_per_token.n, 6);
    EXPECT_EQ(r.cases[1].status, status);
    EXPECT_FALSE(r.cases[1].status_reason->empty());
    EXPECT_EQ(r.cases[1].timing.ms_per_token.n, 0);
    expect_valid_json(r);
  }
}

TEST_F(MeasureRun, ADivergenceSaysHowCloseTheChoiceWas) {
  FaultyBackend faulty(*backend_, FaultyBackend::Fault::kWrongArgmax);
  input_.backend = &faulty;
  input_.config.methods = {Method::kAutoregressive, Method::kRetrieval};
  input_.config.speculation.sampling.temperature = 0;
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kNumeric);
  const Lossless& l = r.cases[1].lossless;
  ASSERT_TRUE(l.first_divergence && l.top2_margin);
  EXPECT_EQ(l.first_divergence->position, 0);
  ASSERT_FALSE(faulty.margins.empty());
  EXPECT_NEAR(*l.top2_margin, faulty.margins.front(), 1e-6);
  EXPECT_NE(to_table(r).find("apart there"), std::string::npos);
}

TEST_F(MeasureRun, WithoutABaselineThereIsNoSpeedup) {
  input_.config.methods = {Method::kTriForce};
  const RunResult r = measure();
  ASSERT_EQ(r.cases.size(), 1U);
  EXPECT_FALSE(r.cases[0].speedup.has_value());
  EXPECT_FALSE(r.cases[0].lossless.equal_to_baseline.has_value());
}

// Times always differ by more than a billionth: every prompt is measured as often as is allowed.
TEST_F(MeasureRun, NoiseIsMeasuredMoreOften) {
  input_.config.max_noise_pct = 1e-9;
  input_.config.repetitions = 2;
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kInconclusive);
  for (const CaseResult& c : r.cases) {
    EXPECT_EQ(c.status, CaseStatus::kOk);
    EXPECT_EQ(c.timing.ms_per_token.n, 2 * 2 * kMaxNoiseFactor);
    EXPECT_FALSE(c.validity.comparable);
    EXPECT_TRUE(c.lossless.mode == LosslessMode::kBaseline || c.lossless.equal_to_baseline == true);
  }
  EXPECT_EQ(recorder_.last_total, std::ssize(recorder_.generations));
  recorder_ = {};
  input_.config.max_noise_pct = 1e9;
  const RunResult quiet = measure();
  EXPECT_EQ(quiet.exit_code, ExitCode::kOk);
  for (const CaseResult& c : quiet.cases) EXPECT_EQ(c.timing.ms_per_token.n, 2 * 2);
}

// ---- Several configurations over one context.
class MeasureGroup : public MeasureRun {
 protected:
  // Four that differ in all that may change over a finished prompt.
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
