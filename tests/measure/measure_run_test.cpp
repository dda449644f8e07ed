// The measurement over the real engine and a toy pair.
#include "measure/measure_run.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "core/fields.h"
#include "core/forwarding_backend.h"
#include "model/retrieval_cache.h"

namespace triforce {
namespace {

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
    EXPECT_TRUE(c.timing.noise_pct && c.timing.fill_ms[kFullPass]);
    EXPECT_GT(*c.timing.fill_ms[kFullPass], 0);
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
    for (const double phase : *c.phases_ms_per_round) phases += std::isnan(phase) ? 0 : phase;
    EXPECT_NEAR(phases * rounds, ms, 0.2 * ms);
    // Passes have the names of the chain, and only these are timed.
    ASSERT_EQ(c.steps.size(), c.chain->size());
    for (std::size_t i = 0; i < c.chain->size(); ++i) {
      EXPECT_EQ(c.traffic[i].pass, c.chain->at(i));
      EXPECT_EQ(c.steps[i].pass, c.chain->at(i));
      EXPECT_TRUE(c.steps[i].ms && c.steps[i].one_row_ms);
    }
    for (const PassSpec& p : kPassTable) {
      const bool timed =
          !std::isnan(c.phases_ms_per_round->at(static_cast<std::size_t>(phase_of(p.pass))));
      EXPECT_EQ(timed, spec_of(*parse_method(c.method)).uses(p.pass)) << p.name;
    }
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
  config_.methods = {Method::kAutoregressive, Method::kRetrieval};
  const RunResult r = measure();
  EXPECT_EQ(recorder_.order(),
            "0w0A 0w0B 0r0A 0r0B 0r1B 0r1A 0r2A 0r2B 1r0A 1r0B 1r1B 1r1A 1r2A 1r2B ");
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

// Prompts that are decoded together have the tokens and counters that they have one after the
// other; times are of batches.
TEST_F(MeasureRun, ABatchHasWhatItsPromptsHaveAlone) {
  prompts_.push_back(toy_prompt(kPrompt - 30, kVocab, 2));
  prompts_.push_back(prompts_.back());
  input_.workload.prompts = prompts_;
  input_.workload.data.n_prompts = 4;
  config_.methods = {Method::kAutoregressive, Method::kTriForce};
  config_.repetitions = 2;
  config_.record = {true, true, true};
  const RunResult alone = measure();
  recorder_ = {};
  config_.batch = 2;
  const RunResult r = measure();
  ASSERT_EQ(r.exit_code, ExitCode::kOk);
  EXPECT_EQ(recorder_.order(), "0w0A 0w0B 0r0A 0r0B 0r1B 0r1A 2r0A 2r0B 2r1B 2r1A ");
  EXPECT_EQ(recorder_.last_total, 10);
  EXPECT_EQ(recorder_.streamed[Method::kTriForce], 4 * kGenerated);
  for (std::size_t i = 0; i < 2; ++i) {
    const CaseResult &a = alone.cases[i], &b = r.cases[i];
    SCOPED_TRACE(b.name);
    EXPECT_EQ(a.case_id, b.case_id);
    EXPECT_NE(a.timing_id, b.timing_id);
    const auto samples_of = [](const CaseResult& c) {
      std::set<std::tuple<int, int, std::string>> all;
      for (const Sample& s : c.timing.samples) {
        if (!s.warmup) all.emplace(s.prompt, s.repetition, s.tokens_sha256);
      }
      return all;
    };
    EXPECT_EQ(samples_of(a), samples_of(b));
    EXPECT_EQ(samples_of(b).size(), 8U);
    EXPECT_EQ(to_json_text(a.output), to_json_text(b.output));
    EXPECT_EQ(to_json_text(a.after_prompt), to_json_text(b.after_prompt));
    ASSERT_EQ(a.acceptance.size(), b.acceptance.size());
    for (std::size_t l = 0; l < a.acceptance.size(); ++l) {
      EXPECT_EQ(to_json_text(a.acceptance[l]), to_json_text(b.acceptance[l]));
    }
    EXPECT_FALSE(a.batch.has_value());
    ASSERT_TRUE(b.batch && b.batch->baseline_alone_ms_per_token && b.batch->gain_over_alone);
    EXPECT_EQ(b.batch->prompts, 2);
    EXPECT_EQ(b.timing.ms_per_token.n, 8);
    for (const Sample& s : b.timing.samples) EXPECT_EQ(s.batch, s.prompt / 2);
    // Two prompts in the time of the later one.
    EXPECT_GT(*b.timing.tokens_per_s, 1000 / *b.timing.ms_per_token.geometric_mean);
    EXPECT_LE(*b.timing.tokens_per_s, 2001 / *b.timing.ms_per_token.geometric_mean);
    for (auto tag = static_cast<std::size_t>(MemTag::kKvFull);
         tag < static_cast<std::size_t>(MemTag::kWorkspace); ++tag) {
      EXPECT_EQ(b.memory.planned->bytes[tag], b.memory.peak->bytes[tag])
          << to_string(static_cast<MemTag>(tag));
    }
    EXPECT_GT(b.memory.planned->bytes[static_cast<std::size_t>(MemTag::kKvFull)],
              a.memory.planned->bytes[static_cast<std::size_t>(MemTag::kKvFull)]);
  }
  expect_valid_json(r);
}

// A run's peaks are its own, whatever the process ran before.
TEST_F(MeasureRun, PeaksAreThoseOfTheRun) {
  input_.hooks.observer = nullptr;
  config_.repetitions = 1;
  config_.warmup = 0;
  for (const std::int64_t budget : {128, 64}) {
    config_.speculation.budget = budget;
    const RunResult r = measure();
    ASSERT_EQ(r.exit_code, ExitCode::kOk);
    const MemoryResult& m = r.cases[0].memory;
    for (auto tag = static_cast<std::size_t>(MemTag::kKvFull);
         tag < static_cast<std::size_t>(MemTag::kWorkspace); ++tag) {
      EXPECT_EQ(m.planned->bytes[tag], m.peak->bytes[tag]) << budget << ' ' << tag;
    }
  }
}

// It leaves no trace in what follows.
TEST_F(MeasureRun, APassComesBeforeTheFirstPrompt) {
  const RunResult warm = measure();
  EXPECT_EQ(recorder_.first_passes, 1);
  EXPECT_EQ(recorder_.target_prefills, 2);
  Recorder cold_recorder, batch_recorder;
  input_.hooks.observer = &cold_recorder;
  config_.warmup = 0;
  const RunResult cold = measure();
  EXPECT_EQ(cold_recorder.first_passes, 0);
  EXPECT_EQ(cold_recorder.target_prefills, 2);
  for (std::size_t i = 0; i < warm.cases.size(); ++i) {
    ASSERT_EQ(warm.cases[i].output.size(), cold.cases[i].output.size());
    for (std::size_t o = 0; o < warm.cases[i].output.size(); ++o) {
      EXPECT_EQ(warm.cases[i].output[o].sha256, cold.cases[i].output[o].sha256);
    }
  }
  input_.hooks.observer = &batch_recorder;
  config_.warmup = 1;
  config_.batch = 2;
  EXPECT_EQ(measure().exit_code, ExitCode::kOk);
  EXPECT_EQ(batch_recorder.first_passes, 1);
}

TEST_F(MeasureRun, GreedyStreamsAreEqual) {
  config_.speculation.acceptance = Acceptance::kSpeculative;
  config_.speculation.sampling.temperature = 0;
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
  config_.record = {true, true, true};
  recorder_ = {};
  const RunResult r = measure();
  const auto context = std::make_shared<Context>(*backend_, pair_.target,
                                                 Context::shape_of({kPrompt, kGenerated, {}}));
  Methods methods(context, nullptr, config_.speculation, std::vector{Method::kRetrieval});
  for (int p = 0; p < 2; ++p) {
    const PromptTokens prompt = input_.workload.prompts[static_cast<std::size_t>(p)];
    context->prefill({&prompt, 1}, nullptr, nullptr);
    methods.prefill_methods(nullptr, nullptr);
    const std::vector<std::int32_t> ids = methods.retrieval_cache(0)->selected_chunks();
    const std::vector<float> probs = methods.probs_after_prompt(0);
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
  config_.speculation.acceptance = Acceptance::kSpeculative;
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kOk);
  EXPECT_EQ(r.cases[1].lossless.mode, LosslessMode::kDistribution);
  EXPECT_FALSE(r.cases[1].lossless.equal_to_baseline.has_value());
}

TEST_F(MeasureRun, AStopKeepsFinishedRepetitions) {
  config_.methods = {Method::kAutoregressive, Method::kRetrieval};
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
  input_.hooks.timeout_s = 1e-6;
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kInconclusive);
  for (const CaseResult& c : r.cases) {
    EXPECT_EQ(c.status, CaseStatus::kTimeout);
    EXPECT_EQ(c.timing.ms_per_token.n, 0);
  }
  expect_valid_json(r);
}

// Spoils the logits of passes of more than one row, or refuses to make probs of them at all.
class FaultyBackend final : public ForwardingBackend {
 public:
  enum class Fault : std::uint8_t { kNaN, kNoMemory, kWrongArgmax };
  FaultyBackend(Backend& to, Fault fault) : ForwardingBackend(to), fault_(fault) {}
  void do_to_probs(std::span<const ProbsRequest> requests, const SamplingParams& params) override {
    for (const ProbsRequest& r : requests) {
      if (r.logits.shape[0] > 1) spoil(r.logits);
    }
    ForwardingBackend::do_to_probs(requests, params);
  }
  std::vector<float> margins;  // between the two largest logits, before kWrongArgmax spoiled them

 private:
  void spoil(const TensorView& logits) {
    if (fault_ == Fault::kNaN) logits.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    if (fault_ == Fault::kNoMemory) throw_resources("OutOfMemory", "no room");
    if (fault_ == Fault::kWrongArgmax) {
      std::span row(logits.as<float>(), static_cast<std::size_t>(logits.shape[1]));
      const auto top = std::max_element(row.begin(), row.end());
      const float largest = std::exchange(*top, std::numeric_limits<float>::lowest());
      margins.push_back(largest - *std::max_element(row.begin(), row.end()));
    }
  }

  Fault fault_;
};

TEST_F(MeasureRun, AFailingMethodLeavesTheOthersTheirResults) {
  for (const auto& [fault, status, code] :
       {std::tuple{FaultyBackend::Fault::kNaN, CaseStatus::kError, ExitCode::kNumeric},
        {FaultyBackend::Fault::kNoMemory, CaseStatus::kOom, ExitCode::kResources}}) {
    FaultyBackend faulty(*backend_, fault);
    input_.machine.backend = &faulty;
    config_.methods = {Method::kAutoregressive, Method::kRetrieval};
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
  input_.machine.backend = &faulty;
  config_.methods = {Method::kAutoregressive, Method::kRetrieval};
  config_.speculation.sampling.temperature = 0;
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kNumeric);
  const Lossless& l = r.cases[1].lossless;
  ASSERT_TRUE(l.first_divergence && l.top2_margin);
  EXPECT_EQ(l.first_divergence->position, 0);
  ASSERT_FALSE(faulty.margins.empty());
  EXPECT_NEAR(*l.top2_margin, faulty.margins.front(), 1e-6);
  EXPECT_NE(to_table(r).find("apart there"), std::string::npos);
}

TEST_F(MeasureRun, WhereNothingVerifiesTheDivergenceIsMeasured) {
  config_.methods = {Method::kAutoregressive, Method::kRetrieval, Method::kLossyQuantised};
  const RunResult r = measure();
  EXPECT_EQ(r.exit_code, ExitCode::kOk);
  EXPECT_FALSE(r.cases[0].divergence || r.cases[1].divergence);
  ASSERT_TRUE(r.cases[2].divergence);
  const DivergenceResult& d = *r.cases[2].divergence;
  ASSERT_EQ(d.by_prompt.size(), input_.workload.prompts.size());
  double sum = 0;
  for (const DivergenceResult::OfPrompt& p : d.by_prompt) {
    EXPECT_EQ(p.positions, std::min<std::int64_t>(config_.gen_len, 64));
    sum += p.mean;
  }
  EXPECT_EQ(std::ssize(d.by_position), std::min<std::int64_t>(config_.gen_len, 64));
  EXPECT_GT(d.mean, 0);
  EXPECT_NEAR(d.mean, sum / static_cast<double>(d.by_prompt.size()), 1e-12);
  ASSERT_EQ(d.ci95_low.has_value(), d.by_prompt.size() > 1);
  if (d.ci95_low) {
    EXPECT_LE(*d.ci95_low, d.mean);
    EXPECT_GE(*d.ci95_high, d.mean);
  }
  EXPECT_NE(to_table(r).find("KL nats"), std::string::npos);
  expect_valid_json(r);
}

TEST_F(MeasureRun, WithoutABaselineThereIsNoSpeedup) {
  config_.methods = {Method::kTriForce};
  const RunResult r = measure();
  ASSERT_EQ(r.cases.size(), 1U);
  EXPECT_FALSE(r.cases[0].speedup.has_value());
  EXPECT_FALSE(r.cases[0].lossless.equal_to_baseline.has_value());
}

// Times always differ by more than a billionth: every prompt is measured as often as is allowed.
TEST_F(MeasureRun, NoiseIsMeasuredMoreOften) {
  config_.max_noise_pct = 1e-9;
  config_.repetitions = 2;
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
  config_.max_noise_pct = 1e9;
  const RunResult quiet = measure();
  EXPECT_EQ(quiet.exit_code, ExitCode::kOk);
  for (const CaseResult& c : quiet.cases) EXPECT_EQ(c.timing.ms_per_token.n, 2 * 2);
}

}  // namespace
}  // namespace triforce
