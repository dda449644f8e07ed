// Tests: tests/measure/measure_run_test.cpp, tests/measure/measure_group_test.cpp
#include "measure/measure.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <set>

#include "host/machine.h"
#include "measure/measurement.h"
#include "statistics/statistics.h"

namespace triforce {
namespace {

// Repetitions of a single pass when step times are measured; the least of them counts.
constexpr int kStepRepetitions = 5;

using Clock = std::chrono::steady_clock;

// [heads, n] of a list of ids.
std::vector<std::vector<std::int32_t>> rows_of(const std::vector<std::int32_t>& ids, int heads) {
  const auto n = static_cast<std::ptrdiff_t>(ids.size()) / heads;
  std::vector<std::vector<std::int32_t>> out;
  auto row = ids.begin();
  for (int h = 0; h < heads; ++h, row += n) out.emplace_back(row, row + n);
  return out;
}

}  // namespace

void Measurement::fail(MethodState* method, CaseStatus status, ExitCode code,
                       const std::string& reason) {
  if (state_.first_error == ExitCode::kOk) state_.first_error = code;
  for (MethodState& m : state_.methods) {
    if (method != nullptr ? &m != method : m.failed.has_value()) continue;
    m.failed = status;
    m.reason = reason;
  }
}

bool Measurement::stopped() {
  if (state_.stopped || state_.timed_out) return true;
  state_.stopped = in_.hooks.stop && in_.hooks.stop();
  if (!state_.stopped && in_.hooks.timeout_s > 0) {
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin_).count();
    state_.timed_out = spent_s_ + elapsed >= in_.hooks.timeout_s;
  }
  return state_.stopped || state_.timed_out;
}

bool Measurement::prefill(int prompt, SharedPrefill& target) {
  const auto& tokens = in_.workload.prompts[static_cast<std::size_t>(prompt)];
  const PrefillProgress progress = [&](Pass pass, std::int64_t done, std::int64_t total) {
    observer_.on_prefill(prompt, static_cast<int>(in_.workload.prompts.size()), pass, done, total);
  };
  const StopRequested stop = [this] { return stopped(); };
  PrefillMetrics metrics;
  const bool done = guarded(nullptr, [&] {
    if (!target.done) {
      const auto begin = Clock::now();
      target.done = engine_->prefill_context(tokens, progress, stop);
      const std::chrono::duration<double, std::milli> taken = Clock::now() - begin;
      if (target.done && !target.ms) target.ms = taken.count();
    }
    if (target.done) metrics = engine_->prefill_methods(progress, stop);
    metrics.interrupted = metrics.interrupted || !target.done;
    metrics.fill_ms[kFullPass] = target.ms.value_or(0);
  });
  if (!done || metrics.interrupted) return false;
  state_.prefills.push_back(metrics);
  return true;
}

// What --record asks for of the moment after the prompt.
bool Measurement::record(int prompt) {
  if (!c_.record.chunks && !c_.record.probs) return true;
  AfterPrompt after;
  after.prompt = prompt;
  const bool done = guarded(nullptr, [&] {
    if (c_.record.chunks) {
      const auto layers = engine_->selected_chunks();
      if (!layers.empty()) after.chunks.emplace();
      for (const auto& ids : layers) {
        after.chunks->push_back(rows_of(ids, in_.machine.target->config.kv_heads));
      }
    }
    if (c_.record.probs) {
      top_of(engine_->probs_after_prompt(), kRecordedProbs, after.top_tokens.emplace(),
             after.top_probs.emplace());
    }
  });
  if (done) state_.after_prompts.push_back(std::move(after));
  return done;
}

// Whether it was generated to its end.
bool Measurement::generate_now(const MethodState& m, const TokenCallback& on_tokens,
                               MeasuredRun& run) {
  engine_->set_gammas(m.gammas);
  const bool later_warmup = run.warmup && run.prompt > 0;
  const std::int64_t tokens =
      later_warmup ? std::min<std::int64_t>(c_.gen_len, kLaterWarmupTokens) : c_.gen_len;
  run.metrics =
      engine_->generate(m.method->method, tokens, run.seed, static_cast<std::uint32_t>(run.prompt),
                        on_tokens, [this] { return stopped(); });
  if (run.metrics.interrupted) return false;
  if (shared_ != nullptr && m.method->is_baseline()) {
    shared_->add(c_.speculation, run, make_run_id(*state_.context, state_.salt));
  }
  return true;
}

// Whether another measurement has generated it.
bool Measurement::take_baseline(MeasuredRun& run) const {
  if (shared_ == nullptr) return false;
  const MeasuredRun* known = shared_->find(c_.speculation, run.prompt, run.repetition, run.warmup);
  if (known != nullptr) run = *known;
  return known != nullptr;
}

void Measurement::generate(MethodState& m, int prompt, int repetition, bool warmup) {
  if (m.failed || stopped()) return;
  const bool shown_by_warmup = c_.warmup > 0 && prompt == 0;
  const bool first = repetition == 0 && warmup == shown_by_warmup;
  observer_.on_generation(m.method->method, prompt, repetition, warmup, index_++, total_);
  TokenCallback on_tokens;
  if (warmup && first) {
    on_tokens = [&](std::span<const Token> tokens, std::span<const std::uint8_t> origins) {
      observer_.on_tokens(m.method->method, tokens, origins);
    };
  }
  MeasuredRun run{prompt, repetition,
                  warmup, c_.seed + static_cast<std::uint64_t>(warmup ? 0 : repetition),
                  {},     {}};
  const bool taken = m.method->is_baseline() && take_baseline(run);
  bool done = taken;
  if (!taken) guarded(&m, [&] { done = generate_now(m, on_tokens, run); });
  if (!done) return;
  if (!warmup) {
    const auto tokens = static_cast<double>(run.metrics.tokens.size());
    observer_.on_timed(m.method->method, run.metrics.decode_ms / tokens);
  }
  if (first && (taken || !warmup)) {
    observer_.on_tokens(m.method->method, run.metrics.tokens, run.metrics.origins);
  }
  m.runs.push_back(std::move(run));
}

// Single passes on the first prompt, for the prediction beside each speedup.
void Measurement::measure_steps() {
  PerPass<std::set<int>> rows;
  rows[kFullPass].insert(1);
  for (const MethodState& m : state_.methods) {
    rows[m.method->proposer()].insert(1);
    for (int l = 0; l < m.method->levels(); ++l) {
      std::set<int>& of = rows[m.method->verifier(l)];
      const int asked = m.method->step(l, m.gammas);
      of.insert({1, asked + 1});
      if (l == 0) continue;
      // The level below may hand over more than it was asked for.
      of.insert(std::min(asked + m.method->step(l - 1, m.gammas) + 1, max_exact_rows(m.gammas)));
    }
  }
  for (const PassSpec& p : kPassTable) {
    for (const int r : rows[p.pass]) {
      if (stopped()) return;
      state_.steps[p.pass].points.emplace_back(r, engine_->pass_ms(p.pass, r, kStepRepetitions));
    }
  }
}

void Measurement::warm_up(int prompt) {
  for (int w = 0; w < c_.warmup; ++w) {
    for (const std::size_t m : interleaved_order(state_.methods.size(), w)) {
      generate(state_.methods[m], prompt, w, true);
    }
  }
  if (prompt > 0) return;
  const auto speculates = [](const MethodState& m) { return m.method->speculates(); };
  if (std::ranges::none_of(state_.methods, speculates)) return;
  guarded(nullptr, [&] { measure_steps(); });
}

void Measurement::resume() {
  begin_ = Clock::now();
  if (in_.hooks.load != nullptr) in_.hooks.load->resume();
}

// Until the next prompt: others may be at work.
void Measurement::pause() {
  if (shared_ != nullptr) engine_.reset();
  spent_s_ += std::chrono::duration<double>(Clock::now() - begin_).count();
  begin_ = Clock::now();
  if (in_.hooks.load != nullptr) in_.hooks.load->pause();
}

// For a stream that left the baseline's on this prompt: was it a close call?
void Measurement::measure_margins(int prompt) {
  const MethodState* base = state_.baseline();
  if (base == nullptr) return;
  for (MethodState& m : state_.methods) {
    if (m.top2_margin || m.failed || stopped()) continue;
    const auto found =
        compare_streams(&base->runs, m.runs, lossless_mode(c_.speculation, *m.method))
            .first_divergence;
    if (!found || found->prompt != prompt) continue;
    const MeasuredRun* run = find_timed(base->runs, prompt, found->repetition);
    guarded(&m, [&] {
      m.top2_margin = engine_->top2_margin(
          std::span(run->metrics.tokens).first(static_cast<std::size_t>(found->position)));
    });
  }
}

bool Measurement::open() {
  if (engine_) return true;
  return guarded(nullptr, [&] {
    const RunShape shape{state_.longest_prompt, c_.gen_len, c_.methods, in_.machine.homes};
    engine_ = in_.machine.make_engine ? in_.machine.make_engine(shape)
                                      : make_engine(*in_.machine.backend, *in_.machine.target,
                                                    in_.machine.draft, c_.speculation, shape);
    if (state_.budget) engine_->set_budget(*state_.budget);
  });
}

void Measurement::repeat(int prompt, int repetition) {
  for (const std::size_t m : interleaved_order(state_.methods.size(), repetition)) {
    generate(state_.methods[m], prompt, repetition, false);
  }
  observer_.on_repetition([this] { return result(false); });
}

bool Measurement::noisy() {
  if (!c_.max_noise_pct) return false;
  const std::vector<CaseResult> cases = result(false).cases;
  return std::ranges::any_of(cases, [this](const CaseResult& c) { return is_noisy(c_, c); });
}

// In a process that goes on at a later prompt: kernels and weights are cold, and the warm-up of the
// first prompt was another process's.
void Measurement::warm_up_again(int prompt) {
  for (int w = 0; w < c_.warmup; ++w) {
    for (const std::size_t i : interleaved_order(state_.methods.size(), w)) {
      MethodState& m = state_.methods[i];
      MeasuredRun run;
      run.prompt = prompt;
      const bool taken = m.method->is_baseline() && take_baseline(run);
      if (m.failed || taken || stopped()) continue;
      guarded(&m, [&] {
        engine_->set_gammas(m.gammas);
        engine_->generate(m.method->method, c_.gen_len, c_.seed, static_cast<std::uint32_t>(prompt),
                          {}, [this] { return stopped(); });
      });
    }
  }
}

// Whether all was generated on this prompt that was asked for.
bool Measurement::has_all(int prompt) const {
  return std::ranges::all_of(state_.methods, [&](const MethodState& m) {
    const auto timed = std::ranges::count_if(
        m.runs, [&](const MeasuredRun& r) { return !r.warmup && r.prompt == prompt; });
    return !m.failed && timed >= c_.repetitions;
  });
}

// Whether the prompt has ended for all methods.
bool Measurement::measure_open(int prompt, SharedPrefill& target) {
  if (!prefill(prompt, target) || !record(prompt)) return false;
  if (!warmed_ && restored_ > 0) warm_up_again(prompt);
  warmed_ = true;
  if (prompt == 0 || shared_ != nullptr) warm_up(prompt);
  for (int r = 0; r < c_.repetitions && !stopped(); ++r) repeat(prompt, r);
  bool whole = has_all(prompt);
  for (int r = c_.repetitions; noisy() && r < kMaxNoiseFactor * c_.repetitions; ++r) {
    whole = whole && !stopped();
    if (!whole) break;
    total_ += std::ssize(state_.methods);
    repeat(prompt, r);
  }
  measure_margins(prompt);
  return whole;
}

void Measurement::measure_prompt(int prompt, SharedPrefill& target) {
  if (prompt < restored_) return;
  resume();
  const bool failed = std::ranges::all_of(
      state_.methods, [](const MethodState& m) { return m.failed.has_value(); });
  const bool whole = !failed && !stopped() && open() && measure_open(prompt, target);
  pause();
  if (whole && state_.first_error == ExitCode::kOk) finish_prompt(prompt);
}

namespace {

// What `measure` returns; nullopt: too little memory.
auto unless_memory_lacks(const auto& measure) {
  decltype(std::optional(measure())) measured;
  error_of(ExitCode::kResources, [&] { measured = measure(); });
  return measured;
}

}  // namespace

std::optional<Backend::Bandwidths> bandwidths_now(Backend& backend) {
  return unless_memory_lacks([&] { return backend.measure_bandwidths(); });
}

std::optional<double> gemm_gflops_now(Backend& backend, DType dtype) {
  return unless_memory_lacks([&] { return backend.measure_gemm_gflops(dtype); });
}

std::vector<RunResult> run_measurements(std::span<const MeasureInput> inputs) {
  TF_CHECK(!inputs.empty());
  SharedBaselines shared;
  std::deque<Measurement> measurements;
  for (const MeasureInput& input : inputs) {
    TF_CHECK(input.workload.prompts.size() == inputs.front().workload.prompts.size());
    TF_CHECK(inputs.size() == 1 || input.hooks.shares_context);
    measurements.emplace_back(input, input.hooks.shares_context ? &shared : nullptr);
  }
  const auto device_failed = [&] {
    return std::ranges::any_of(measurements,
                               [](const Measurement& m) { return m.device_failed(); });
  };
  const auto own = inputs.front().workload.tuning_prompts;
  const auto tuning = own.empty() ? inputs.front().workload.prompts.first(1) : own;
  for (std::size_t p = 0; p < tuning.size(); ++p) {
    SharedPrefill target;
    for (Measurement& m : measurements) {
      if (!device_failed()) m.tune(tuning[p], p + 1 == tuning.size(), target);
    }
  }
  const auto prompts = static_cast<int>(inputs.front().workload.prompts.size());
  for (int p = 0; p < prompts && !device_failed(); ++p) {
    SharedPrefill target;
    for (const Measurement& m : measurements) {
      if (!target.ms) target.ms = m.recorded_prefill_ms(p);
    }
    for (Measurement& m : measurements) {
      if (!device_failed()) m.measure_prompt(p, target);
    }
  }
  for (Measurement& m : measurements) m.close();
  const bool complete =
      std::ranges::all_of(measurements, [](const Measurement& m) { return m.complete(); });
  const MeasureInput& first = inputs.front();
  // Ranks would share the memory's bandwidth, or measure it while others wait.
  const bool alone = first.facts.context.ranks == 1;
  if (complete && alone && first.hooks.load != nullptr && first.facts.context.measured_read_gbs) {
    if (const auto after = bandwidths_now(*first.machine.backend)) {
      for (Measurement& m : measurements) m.set_read_bandwidth(after->read_gbs);
    }
  }
  std::vector<RunResult> results;
  for (Measurement& m : measurements) results.push_back(m.result(true));
  measurements.clear();
  inputs.front().machine.backend->allocator().reset_peaks();  // those of the next run are its own
  return results;
}

}  // namespace triforce
