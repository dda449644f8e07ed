// Tests: tests/measure/result_test.cpp, tests/measure/measure_run_test.cpp
#include <algorithm>
#include <chrono>

#include "core/sha256.h"
#include "host/machine.h"
#include "measure/measure_state.h"
#include "options/identity.h"
#include "report/printers.h"
#include "statistics/by_prompt.h"
#include "statistics/statistics.h"

namespace triforce {
namespace {

// The cases of a measurement, one a method.
class CaseBuilder {
 public:
  CaseBuilder(const MeasureInput& input, const MeasurementState& state,
              const ResultContext& context)
      : in_(input), c_(*input.facts.config), s_(state), context_(context) {}
  CaseResult build(const MethodState& m) const {
    CaseResult c;
    fill_identity(m, c);
    fill_status(m, c);
    fill_figures(m, c);
    fill_speedup(m, c);
    fill_batch(c);
    if (c_.price_eur_per_hour) c.cost = cost_at(*c_.price_eur_per_hour, c.timing.tokens_per_s);
    fill_tuning(c);
    fill_validity(m, c);
    fill_output(m, c);
    return c;
  }

 private:
  void fill_identity(const MethodState& m, CaseResult& c) const {
    c.name = c.method = m.method->name;
    c.chain.emplace();
    for (const Pass pass : m.method->passes()) c.chain->emplace_back(to_string(pass));
    c.params = in_.facts.params;
    c.target = in_.facts.target;
    if (m.method->has_drafter()) c.draft = in_.facts.draft;
    c.data = in_.workload.data;
    if (m.method->speculates()) {
      c.gammas = CaseGammas{m.gammas.gamma, m.gammas.inner_gamma, m.gammas_chosen};
    }
    c.tuning = m.tuning;
    c.memory = s_.memory;
    if (c_.batch > 1) c.batch = BatchResult{c_.batch, s_.alone_ms_per_token, {}};
    c.case_id = case_id_of(c, context_);
    c.timing_id = timing_id_of(c, context_);
  }

  void fill_status(const MethodState& m, CaseResult& c) const {
    const auto expected = static_cast<std::int64_t>(in_.workload.prompts.size()) * c_.repetitions;
    const auto timed =
        std::ranges::count_if(m.runs, [](const MeasuredRun& r) { return !r.warmup; });
    if (m.failed) {
      c.status = *m.failed;
      c.status_reason = m.reason;
    } else if (timed < expected) {
      c.status = s_.timed_out ? CaseStatus::kTimeout : CaseStatus::kInterrupted;
      const char* why = s_.timed_out ? "--timeout ran out"
                        : s_.ended   ? "stopped by a signal"
                                     : "the run was still going on when this was written";
      c.status_reason = fmt::format("{}: {} of {} generations finished", why, timed, expected);
    }
  }

  void fill_figures(const MethodState& m, CaseResult& c) const {
    const std::int64_t context = s_.longest_prompt + c_.gen_len / 2;
    const PerPass<PassWork> bytes = pass_bytes();
    const auto bytes_of = [&](const RunMetrics& metrics) {
      double sum = 0;
      for (const PassCount& p : count_passes(*m.method, metrics, bytes, context)) {
        sum += static_cast<double>(p.passes) * static_cast<double>(p.bytes_per_pass);
      }
      return sum;
    };
    c.timing = make_timing(m.runs, preparation_ms(*m.method, s_.prefills), bytes_of, c_.batch);
    fill_prefill(c);
    c.phases_ms_per_round = phases_per_round(*m.method, m.runs);
    c.traffic = make_traffic(*m.method, m.runs, bytes, context, context_);
    c.steps = steps(m);
    // Simulated acceptances are drawn anew for each repetition, whatever the temperature.
    const bool repeats =
        c_.speculation.sampling.temperature == 0 && !c_.speculation.synthetic.has_value();
    c.acceptance = make_acceptance(m.runs, repeats);
    c.recovery = make_recovery(m.runs, repeats);
    c.divergence = make_divergence(m.runs);
    c.copied = copied_answers(m.runs, in_.workload.answers, c_.gen_len);
    c.answered = make_answered(m.runs, in_.workload.expected, [this](std::span<const Token> ids) {
      return in_.workload.decode_text(ids).text;
    });
  }

  // Of the first batch: those that are equal are processed once.
  double different_prompts() const {
    const auto batch = std::min(static_cast<std::size_t>(c_.batch), in_.workload.prompts.size());
    double different = 0;
    for (std::size_t i = 0; i < batch; ++i) {
      const auto before = in_.workload.prompts.first(i);
      if (std::ranges::find(before, in_.workload.prompts[i]) == before.end()) ++different;
    }
    return different;
  }
  void fill_prefill(CaseResult& c) const {
    if (s_.prefills.empty()) return;
    Timing& t = c.timing;
    for (const PassSpec& pass : kPassTable) {
      std::vector<double> values;
      for (const PrefillMetrics& p : s_.prefills) {
        if (p.fill_ms[pass.pass]) values.push_back(*p.fill_ms[pass.pass]);
      }
      if (!values.empty()) t.fill_ms[pass.pass] = median(values);
    }
    const double prefill_ms = t.fill_ms[kFullPass].value_or(0);
    if (in_.machine.plan.prefill_operations > 0 && prefill_ms > 0) {
      t.prefill_operations = in_.machine.plan.prefill_operations * different_prompts();
      t.prefill_gflops = *t.prefill_operations / prefill_ms / 1e6;
      const std::optional<double>& bound = context_.measured_gemm_gflops;
      if (bound && *bound > 0) t.prefill_fraction_gemm = *t.prefill_gflops / *bound;
    }
  }

  void fill_speedup(const MethodState& m, CaseResult& c) const {
    const MethodState* base = s_.baseline();
    c.lossless = compare_streams(base == nullptr ? nullptr : &base->runs, m.runs,
                                 lossless_mode(c_.speculation, *m.method));
    c.lossless.exact_rule = exact_rule(c_.speculation, *m.method);
    c.lossless.top2_margin = m.top2_margin;
    if (base == nullptr || base == &m) return;
    if (c.lossless.mode == LosslessMode::kLossy && draws_equally(c_.speculation)) {
      c.lossless.equal_tokens = equal_tokens(base->runs, m.runs);
    }
    c.speedup = make_speedup({base->runs, preparation_ms(*base->method, s_.prefills)},
                             {m.runs, preparation_ms(*m.method, s_.prefills)}, c_.batch);
    if (!c.speedup || !drafts_chains(*m.method, c_.speculation)) return;
    const auto predicted = predicted_ms_per_token(
        *m.method, s_.steps, alphas_of(merged_levels(m.runs)), m.gammas, {.lanes = c_.batch});
    if (predicted && *predicted > 0) c.speedup->predicted = s_.steps[kFullPass].at(1) / *predicted;
  }

  void fill_batch(CaseResult& c) const {
    if (!c.batch || !s_.alone_ms_per_token || !c.timing.tokens_per_s) return;
    c.batch->gain_over_alone = *c.timing.tokens_per_s * *s_.alone_ms_per_token / 1000;
  }

  void fill_validity(const MethodState& m, CaseResult& c) const {
    const RunShape run{s_.longest_prompt, c_.gen_len, c_.methods};
    std::vector<std::string>& notes = c.validity.notes;
    const auto add = [&](std::string note) {
      if (!note.empty()) notes.push_back(std::move(note));
    };
    notes = in_.facts.target_notes;
    if (in_.machine.target != nullptr)
      add(note_on_target(in_.machine.target->config, c_.speculation, run));
    if (m.method->has_drafter()) {
      notes.insert(notes.end(), in_.facts.draft_notes.begin(), in_.facts.draft_notes.end());
      if (in_.machine.draft != nullptr)
        add(note_on_drafter(in_.machine.draft->config, c_.speculation, run));
    }
    std::vector<std::string>& reasons = c.validity.reasons;
    reasons = build_reasons(context_);
    add_parts(c.validity);
    if (c.target && c.target->random_seed) reasons.emplace_back("random weights");
    if (c.draft && c.draft->random_seed) reasons.emplace_back("random weights of the drafter");
    if (in_.workload.data.bytes_as_ids && !(c.target && c.target->random_seed)) {
      reasons.emplace_back("no tokenizer: bytes taken as token ids");
    }
    if (c_.speculation.synthetic && m.method->speculates()) {
      reasons.emplace_back("synthetic acceptance, the tokens are meaningless");
    }
    if (!c.lossless.exact_rule) reasons.emplace_back("published inner rule, not lossless");
    if (c.lossless.mode == LosslessMode::kLossy) {
      reasons.emplace_back("not lossless, nothing verifies what the small cache says");
    }
    if (c.recovery) reasons.emplace_back("times include those of --measure-recovery");
    if (is_noisy(c_, c)) {
      reasons.push_back(fmt::format("noise {:.1f}% over --max-noise {}%", *c.timing.noise_pct,
                                    *c_.max_noise_pct));
    }
    if (c.copied && m.method->is_lossless() && c.copied->tokens() < kMinCopied) {
      reasons.push_back(
          fmt::format("{:.3f} of the tokens are the pass key's: acceptance is not that of copies",
                      c.copied->tokens()));
    }
    if (c_.warmup == 0) reasons.emplace_back("no warm-up");
    if (c.status != CaseStatus::kOk)
      reasons.push_back(fmt::format("status {}", to_string(c.status)));
    std::vector<const std::vector<MeasuredRun>*> all;
    all.reserve(s_.methods.size());
    for (const MethodState& other : s_.methods) all.push_back(&other.runs);
    if (unequal_counts(all)) {
      reasons.emplace_back(
          "methods stopped after different numbers of tokens (end of sequence), use --ignore-eos");
    }
    if (c.lossless.equal_to_baseline == false) {
      reasons.emplace_back("tokens differ from the baseline's");
    }
    c.validity.comparable = reasons.empty();
  }

  // A case that several processes measured, one after the other.
  void add_parts(Validity& validity) const {
    if (s_.parts.size() < 2) return;
    validity.notes.push_back(
        fmt::format("measured by {} processes: it was stopped and went on", s_.parts.size()));
    std::vector<double> gbs;
    for (const MeasuredPart& part : s_.parts) {
      if (part.read_gbs) gbs.push_back(*part.read_gbs);
    }
    if (gbs.size() < 2) return;
    const auto [least, most] = std::ranges::minmax_element(gbs);
    if (*least >= kSameBandwidth * *most) return;
    validity.reasons.push_back(
        fmt::format("the memory's read bandwidth was {:.3g} to {:.3g} GB/s where processes began",
                    *least, *most));
  }

  void fill_output(const MethodState& m, CaseResult& c) const {
    for (const MeasuredRun& r : m.runs) {
      if (r.warmup || (r.repetition != 0 && !c_.record.tokens)) continue;
      PromptOutput o;
      o.prompt = r.prompt;
      o.repetition = r.repetition;
      o.tokens = r.metrics.tokens;
      o.origins = r.metrics.origins;
      if (in_.workload.decode_text) {
        TokenText decoded = in_.workload.decode_text(o.tokens);
        o.text = std::move(decoded.text);
        o.text_ends = std::move(decoded.ends);
      }
      o.sha256 = tokens_sha256(o.tokens);
      c.output.push_back(std::move(o));
    }
    c.after_prompt = s_.after_prompts;
    if (m.method->selects()) return;
    for (AfterPrompt& a : c.after_prompt) a.chunks.reset();
  }

  void fill_tuning(CaseResult& c) const {
    const std::optional<double>& measured = c.timing.ms_per_token.geometric_mean;
    if (!c.tuning || !measured) return;
    c.tuning->measured_ms_per_token = measured;
    const auto error_pct = [](double predicted, double of) { return 100 * (predicted / of - 1); };
    c.tuning->error_pct = error_pct(c.tuning->predicted_ms_per_token, *measured);
    if (!c.speedup || !c.speedup->value) return;
    c.tuning->speedup_error_pct = error_pct(c.tuning->predicted_speedup(), *c.speedup->value);
  }

  std::vector<StepResult> steps(const MethodState& m) const {
    std::vector<StepResult> steps;
    const auto add = [&](Pass pass, int rows) {
      const StepCurve& curve = s_.steps[pass];
      StepResult& step = steps.emplace_back(StepResult{to_string(pass), rows, {}, {}});
      if (curve.points.empty()) return;
      step.ms = curve.at(rows);
      step.one_row_ms = curve.at(1);
    };
    const MethodSpec& spec = *m.method;
    add(spec.proposer(), 1);
    for (int l = 0; l < spec.levels(); ++l) {
      const std::optional<DraftTree> draft = m.draft(l, c_);
      add(spec.verifier(l), 1 + (draft ? draft->nodes() : 0));
    }
    if (!spec.uses(kFullPass)) add(kFullPass, 1);
    return steps;
  }

  // The plan's, but for caches of a budget that was chosen below the one planned for; methods share
  // it.
  PerPass<PassWork> pass_bytes() const {
    PerPass<PassWork> bytes = in_.machine.plan.passes;
    for (const MethodState& m : s_.methods) {
      if (!m.tuning || !m.tuning->chosen.budget) continue;
      for (const PassSpec& p : kPassTable) {
        std::int64_t& tokens = bytes[p.pass].max_tokens;
        if (p.has_budget) tokens = std::min(tokens, *m.tuning->chosen.budget);
      }
    }
    return bytes;
  }

  const MeasureInput& in_;
  const RunConfig& c_;
  const MeasurementState& s_;
  const ResultContext& context_;
};

}  // namespace

ModelInfo model_info(const ModelConfig& config, DType dtype) {
  ModelInfo m;
  m.name = config.name;
  m.arch = to_string(config.architecture);
  m.layers = config.layers;
  m.hidden = config.hidden;
  m.vocab = config.vocab;
  m.heads = config.heads;
  m.kv_heads = config.kv_heads;
  m.head_dim = config.head_dim;
  m.dtype = to_string(dtype);
  m.n_params = config.parameters();
  m.bytes = config.weight_bytes(dtype);
  if (config.eos_of_generation) m.generation_eos = config.eos;
  return m;
}

ModelInfo model_info(const ModelWeights& weights) {
  ModelInfo m = model_info(weights.config, weights.dtype);
  if (!weights.config_sha256.empty()) m.config_sha256 = weights.config_sha256;
  if (!weights.weights_digest.empty()) m.weights_digest = weights.weights_digest;
  if (weights.random) m.random_seed = weights.random_seed;
  return m;
}

std::string make_run_id(const ResultContext& context, const std::string& salt) {
  std::string stamp = context.start;
  std::erase_if(stamp, [](char c) { return c == '-' || c == ':'; });
  std::string hashed;
  for (const std::string& arg : context.argv) hashed += arg + '\n';
  return stamp + '-' + sha256_hex(hashed + context.start + '\n' + salt).substr(0, 8);
}

bool is_noisy(const RunConfig& config, const CaseResult& c) {
  return config.max_noise_pct && c.timing.noise_pct.value_or(0) > *config.max_noise_pct;
}

namespace {

// A domain that was not read to the end, by all processes that measured the case, is not known.
void set_spent(const std::optional<EnergySpent>& spent, RunEnergy& energy) {
  energy.spent = spent;
  for (std::size_t i = 0; i < kDomains.size(); ++i) {
    for (EnergySensor& s : energy.sensors) {
      if (s.domain != kDomainNames[i] || !s.source || !spent) continue;
      if (spent->whole().*kDomains[i]) continue;
      s.unread = *s.source + ": it did not answer all the time";
      s.source.reset();
    }
  }
}

}  // namespace

RunResult build_result(const MeasureInput& input, const MeasurementState& state) {
  RunResult r;
  r.context = state.context.value_or(input.facts.context);
  r.context.clocks = state.gpu.clocks;
  r.context.throttle_reasons = state.gpu.throttle_reasons;
  r.context.pcie = state.gpu.pcie;
  r.context.load = state.load;
  if (r.context.energy) set_spent(state.energy, *r.context.energy);
  r.context.measured_read_gbs_after = state.read_gbs_after;
  r.run_id = make_run_id(r.context, state.salt);
  r.exit_code = state.first_error;
  const CaseBuilder builder(input, state, r.context);
  for (const MethodState& m : state.methods) {
    if (!m.is_measured()) continue;
    r.cases.push_back(builder.build(m));
    const CaseResult& c = r.cases.back();
    // A signal or limit that came when all was measured cut nothing short.
    if (r.exit_code == ExitCode::kOk && c.status == CaseStatus::kTimeout) {
      r.exit_code = ExitCode::kInconclusive;
    }
    if (r.exit_code == ExitCode::kOk && c.status == CaseStatus::kInterrupted && state.stopped) {
      r.exit_code = ExitCode::kInterrupted;
    }
    if (c.lossless.equal_to_baseline == false) {
      r.exit_code = ExitCode::kNumeric;
    } else if (r.exit_code == ExitCode::kOk && is_noisy(*input.facts.config, c)) {
      r.exit_code = ExitCode::kInconclusive;
    }
  }
  const ByDomain idle_watts = r.context.energy.value_or(RunEnergy{}).idle_watts();
  for (CaseResult& c : r.cases) {
    c.energy = energy_of(c, baseline_of(r), idle_watts);
    if (!c.energy || c.energy->joules_per_token.geometric_mean) continue;
    c.validity.notes.emplace_back(
        "energy has no mean and no saving: a counter did not move in some generation, which was "
        "shorter than its step");
  }
  return r;
}

RunResult unrun_result(const MeasureInput& input, CaseStatus status, const std::string& reason,
                       ExitCode exit_code) {
  MeasurementState state;
  for (const Method method : input.facts.config->methods) {
    MethodState m;
    m.method = &spec_of(method);
    m.gammas = input.facts.config->speculation.gammas();
    m.failed = status;
    m.reason = reason;
    state.methods.push_back(std::move(m));
  }
  set_plan(input.machine.plan, state.memory);
  state.ended = true;
  state.first_error = exit_code;
  // Two of the same second and command line are not one run.
  state.salt =
      fmt::format("{} {}", reason, std::chrono::steady_clock::now().time_since_epoch().count());
  RunResult r = build_result(input, state);
  r.context.end = iso_time_now();
  return r;
}

}  // namespace triforce
