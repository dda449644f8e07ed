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

// Tokens of a prompt before which a method's divergence is measured: two passes for each, and as
// many rows of logits in host memory.
constexpr std::size_t kDivergencePositions = 64;

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

void Measurement::warm_context(std::span<const PromptTokens> prompts, const SharedPrefill& target) {
  if (c_.warmup == 0 || target.done || target.fill.tokens > 0) return;
  const PromptTokens first = prompts.front();
  const PromptTokens begin =
      first.first(std::min(first.size(), static_cast<std::size_t>(kPrefillChunk)));
  const PrefillProgress progress = [&](Pass, std::int64_t done, std::int64_t) {
    observer_.on_first_pass(done, std::ssize(begin));  // the other lanes are copies
  };
  energy_.during(&EnergySpent::warmup, [&] {
    engine_->prefill_context(std::vector<PromptTokens>(prompts.size(), begin), progress,
                             [this] { return stopped(); });
  });
}

// What a prefill keeps of the prompts before it is charged by its share of their tokens.
bool Measurement::prefill_target(std::span<const PromptTokens> prompts,
                                 const PrefillProgress& progress, SharedPrefill& target) {
  if (target.done) return true;
  const auto begin = Clock::now();
  const std::optional<PromptsKept> kept =
      engine_->prefill_context(prompts, progress, [this] { return stopped(); });
  if (!kept) return false;
  const double taken = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  ContextFill now{-kept->copied, taken};
  for (const PromptTokens p : prompts) now.tokens += std::ssize(p);
  if (kept->kept > 0) {
    TF_CHECK(target.fill.tokens > 0, "{} tokens kept of none", kept->kept);
    now.ms +=
        target.fill.ms * static_cast<double>(kept->kept) / static_cast<double>(target.fill.tokens);
  }
  target.fill = now;
  target.done = true;
  if (!target.ms) target.ms = now.ms;
  return true;
}

bool Measurement::prefill(int first, SharedPrefill& target) {
  std::vector<PromptTokens> prompts;
  for_each_lane(first, [&](int /*lane*/, int prompt) {
    prompts.emplace_back(in_.workload.prompts[static_cast<std::size_t>(prompt)]);
  });
  const PrefillProgress progress = [&](Pass pass, std::int64_t done, std::int64_t total) {
    observer_.on_prefill(first, static_cast<int>(in_.workload.prompts.size()), pass, done, total);
  };
  const StopRequested stop = [this] { return stopped(); };
  PrefillMetrics metrics;
  const bool done = guarded(nullptr, [&] {
    warm_context(prompts, target);
    energy_.during(&EnergySpent::prefill, [&] {
      if (!prefill_target(prompts, progress, target)) return;
      metrics = engine_->prefill_methods(progress, stop);
    });
    metrics.interrupted = metrics.interrupted || !target.done;
    metrics.fill_ms[kFullPass] = target.ms.value_or(0);
  });
  if (!done || metrics.interrupted) return false;
  state_.prefills.insert(state_.prefills.end(), prompts.size(), metrics);
  return true;
}

// What --record asks for of the moment after the prompts.
bool Measurement::record(int first) {
  if (!c_.record.chunks && !c_.record.probs) return true;
  return guarded(nullptr, [&] {
    for_each_lane(first, [&](int lane, int prompt) {
      AfterPrompt after;
      after.prompt = prompt;
      if (c_.record.chunks) {
        const auto layers = engine_->selected_chunks(lane);
        if (!layers.empty()) after.chunks.emplace();
        for (const auto& ids : layers) {
          after.chunks->push_back(rows_of(ids, in_.machine.target->config.kv_heads));
        }
      }
      if (c_.record.probs) {
        top_of(engine_->probs_after_prompt(lane), kRecordedProbs, after.top_tokens.emplace(),
               after.top_probs.emplace());
      }
      state_.after_prompts.push_back(std::move(after));
    });
  });
}

// Whether they were generated to their end, but for lanes that failed.
bool Measurement::generate_now(MethodState& m, const TokenCallback& on_tokens,
                               std::vector<MeasuredRun>& runs) {
  ask(*engine_, c_, m.asked());
  const MeasuredRun& first = runs.front();
  const bool later_warmup = first.warmup && first.prompt > 0;
  const std::int64_t tokens =
      later_warmup ? std::min<std::int64_t>(c_.gen_len, kLaterWarmupTokens) : c_.gen_len;
  std::vector<RunMetrics> lanes;
  const ByDomain joules =
      energy_.during(first.warmup ? &EnergySpent::warmup : &EnergySpent::decode, [&] {
        lanes = engine_->generate(m.method->method, tokens, first.seed,
                                  static_cast<std::uint32_t>(first.prompt), on_tokens,
                                  [this] { return stopped(); });
      });
  if (std::ranges::any_of(lanes, &RunMetrics::interrupted)) return false;
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    runs[l].metrics = std::move(lanes[l]);
    if (joules.total()) runs[l].energy = 1 / static_cast<double>(lanes.size()) * joules;
  }
  for (const MeasuredRun& run : runs) {
    if (!run.metrics.failed_at) continue;
    fail(&m, CaseStatus::kError, ExitCode::kNumeric,
         fmt::format("prompt {}: {}", run.prompt, not_finite(*run.metrics.failed_at)));
    break;
  }
  std::erase_if(runs, [](const MeasuredRun& r) { return r.metrics.failed_at.has_value(); });
  if (shared_ != nullptr && m.method->is_baseline() && !m.failed) {
    for (const MeasuredRun& run : runs) {
      shared_->add(c_.speculation, run, make_run_id(*state_.context, state_.salt));
    }
  }
  return true;
}

// Whether another measurement has generated all of them.
bool Measurement::take_baselines(std::vector<MeasuredRun>& runs) const {
  if (shared_ == nullptr) return false;
  std::vector<MeasuredRun> known;
  for (const MeasuredRun& run : runs) {
    const MeasuredRun* of = shared_->find(c_.speculation, run.prompt, run.repetition, run.warmup);
    if (of == nullptr) return false;
    known.push_back(*of);
  }
  runs = std::move(known);
  return true;
}

// The generations of a batch, without metrics.
std::vector<MeasuredRun> Measurement::new_runs(int first, int repetition, bool warmup) const {
  std::vector<MeasuredRun> runs;
  for_each_lane(first, [&](int /*lane*/, int prompt) {
    runs.push_back({prompt,
                    repetition,
                    warmup,
                    c_.seed + static_cast<std::uint64_t>(warmup ? 0 : repetition),
                    {},
                    {}});
  });
  return runs;
}

void Measurement::generate(MethodState& m, int first, int repetition, bool warmup) {
  if (!m.is_measured() || m.failed || stopped()) return;
  const bool shown_by_warmup = c_.warmup > 0 && first == 0;
  const bool shown = repetition == 0 && warmup == shown_by_warmup;
  observer_.on_generation(m.method->method, first, repetition, warmup, index_++, total_);
  TokenCallback on_tokens;
  if (warmup && shown) {
    on_tokens = [&](int lane, std::span<const Token> tokens,
                    std::span<const std::uint8_t> origins) {
      if (lane == 0) observer_.on_tokens(m.method->method, first, tokens, origins);
    };
  }
  std::vector<MeasuredRun> runs = new_runs(first, repetition, warmup);
  const bool taken = m.method->is_baseline() && take_baselines(runs);
  bool done = taken;
  if (!taken) guarded(&m, [&] { done = generate_now(m, on_tokens, runs); });
  if (!done) return;
  double ms = 0, tokens = 0;
  for (const MeasuredRun& run : runs) {
    ms = std::max(ms, run.metrics.decode_ms);
    tokens += static_cast<double>(run.metrics.tokens.size());
    const bool told = warmup && !taken && run.prompt == first;
    if (shown && !told) {
      observer_.on_tokens(m.method->method, run.prompt, run.metrics.tokens, run.metrics.origins);
    }
  }
  if (!warmup && tokens > 0) {
    observer_.on_timed(m.method->method, ms * static_cast<double>(runs.size()) / tokens);
  }
  std::ranges::move(runs, std::back_inserter(m.runs));
}

// Single passes on the first prompt, for the prediction beside each speedup.
void Measurement::measure_steps() {
  PerPass<std::set<int>> rows;
  rows[kFullPass].insert(1);
  for (const MethodState& m : state_.methods) {
    if (!m.is_measured()) continue;
    rows[m.method->proposer()].insert(1);
    for (int l = 0; l < m.method->levels(); ++l) {
      std::set<int>& of = rows[m.method->verifier(l)];
      const std::optional<DraftTree> draft = m.draft(l, c_);
      const int asked = draft ? draft->nodes() : 0;
      of.insert({1, asked + 1});
      if (l == 0 || (draft && !draft->is_chain())) continue;
      // The level below may hand over more than it was asked for.
      of.insert(std::min(asked + m.method->step(l - 1, m.gammas) + 1,
                         max_exact_rows(m.gammas, c_.batch)));
    }
  }
  for (const PassSpec& p : kPassTable) {
    for (const int r : rows[p.pass]) {
      if (stopped()) return;
      state_.steps[p.pass].points.emplace_back(r, engine_->pass_ms(p.pass, r, kStepRepetitions));
    }
  }
}

// The baseline on the first prompt of a batch while no other is decoded: what throughput is
// compared with.
void Measurement::measure_alone() {
  if (c_.batch == 1 || state_.baseline() == nullptr || state_.baseline()->failed) return;
  guarded(nullptr, [&] {
    engine_->set_lanes(1);
    std::vector<std::vector<double>> ms_per_token(1);
    for (int r = 0; r < c_.repetitions && !stopped(); ++r) {
      const RunMetrics m =
          engine_
              ->generate(kBaselineMethod, c_.gen_len, c_.seed, 0, {}, [this] { return stopped(); })
              .front();
      if (m.interrupted || m.failed_at) break;
      ms_per_token.front().push_back(m.decode_ms / static_cast<double>(m.tokens.size()));
    }
    engine_->set_lanes(c_.batch);
    if (const auto mean = geometric_mean(ms_per_token)) state_.alone_ms_per_token = mean->value;
  });
}

void Measurement::warm_up(int first) {
  for (int w = 0; w < c_.warmup; ++w) {
    for (const std::size_t m : interleaved_order(state_.methods.size(), w)) {
      generate(state_.methods[m], first, w, true);
    }
  }
  if (first > 0) return;
  measure_alone();
  const auto speculates = [](const MethodState& m) { return m.method->speculates(); };
  if (std::ranges::none_of(state_.methods, speculates)) return;
  guarded(nullptr, [&] { measure_steps(); });
}

void Measurement::resume() {
  begin_ = Clock::now();
  if (in_.hooks.load != nullptr) in_.hooks.load->resume();
  energy_.resume();
}

// Until the next prompt: others may be at work.
void Measurement::pause() {
  if (shared_ != nullptr) engine_.reset();
  spent_s_ += std::chrono::duration<double>(Clock::now() - begin_).count();
  begin_ = Clock::now();
  if (in_.hooks.load != nullptr) in_.hooks.load->pause();
  energy_.pause();
}

// For a stream that left the baseline's on one of these prompts: was it a close call?
void Measurement::measure_margins(int first) {
  const MethodState* base = state_.baseline();
  if (base == nullptr) return;
  for (MethodState& m : state_.methods) {
    if (m.top2_margin || m.failed || stopped()) continue;
    const auto found =
        compare_streams(&base->runs, m.runs, lossless_mode(c_.speculation, *m.method))
            .first_divergence;
    if (!found || found->prompt < first || found->prompt >= first + c_.batch) continue;
    const MeasuredRun* run = find_timed(base->runs, found->prompt, found->repetition);
    guarded(&m, [&] {
      m.top2_margin = engine_->top2_margin(
          found->prompt - first,
          std::span(run->metrics.tokens).first(static_cast<std::size_t>(found->position)));
    });
  }
}

// Of methods where nothing verifies, on these prompts: of the first repetition.
void Measurement::measure_divergences(int first) {
  for (MethodState& m : state_.methods) {
    if (m.method->is_lossless()) continue;
    for (MeasuredRun& run : m.runs) {
      const bool is_here = run.prompt >= first && run.prompt < first + c_.batch;
      if (m.failed || stopped() || run.warmup || run.repetition > 0 || !is_here) continue;
      const auto n = std::min(run.metrics.tokens.size(), kDivergencePositions);
      guarded(&m, [&] {
        run.metrics.divergence = engine_->divergence(m.method->method, run.prompt - first,
                                                     std::span(run.metrics.tokens).first(n));
      });
    }
  }
}

bool Measurement::open() {
  if (engine_) return true;
  return guarded(nullptr, [&] {
    std::vector<Method> methods;
    for (const MethodState& m : state_.methods) {
      if (m.is_measured()) methods.push_back(m.method->method);
    }
    const RunShape shape{state_.longest_prompt, c_.gen_len, std::move(methods), in_.machine.homes,
                         c_.batch};
    engine_ = in_.machine.make_engine ? in_.machine.make_engine(shape)
                                      : make_engine(*in_.machine.backend, *in_.machine.target,
                                                    in_.machine.draft, c_.speculation, shape);
    if (state_.budget) engine_->set_budget(*state_.budget);
  });
}

void Measurement::repeat(int first, int repetition) {
  for (const std::size_t m : interleaved_order(state_.methods.size(), repetition)) {
    generate(state_.methods[m], first, repetition, false);
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
void Measurement::warm_up_again(int first) {
  for (int w = 0; w < c_.warmup; ++w) {
    for (const std::size_t i : interleaved_order(state_.methods.size(), w)) {
      MethodState& m = state_.methods[i];
      std::vector<MeasuredRun> runs = new_runs(first, 0, false);
      const bool taken = m.method->is_baseline() && take_baselines(runs);
      if (!m.is_measured() || m.failed || taken || stopped()) continue;
      guarded(&m, [&] {
        ask(*engine_, c_, m.asked());
        energy_.during(&EnergySpent::warmup, [&] {
          engine_->generate(m.method->method, c_.gen_len, c_.seed,
                            static_cast<std::uint32_t>(first), {}, [this] { return stopped(); });
        });
      });
    }
  }
}

// Whether all was generated on the prompts of this batch that was asked for.
bool Measurement::has_all(int first) const {
  return std::ranges::all_of(state_.methods, [&](const MethodState& m) {
    if (!m.is_measured()) return true;
    const auto timed = std::ranges::count_if(m.runs, [&](const MeasuredRun& r) {
      return !r.warmup && r.prompt >= first && r.prompt < first + c_.batch;
    });
    return !m.failed && timed >= std::int64_t{c_.batch} * c_.repetitions;
  });
}

// Whether the batch has ended for all methods.
bool Measurement::measure_open(int first, SharedPrefill& target) {
  if (!prefill(first, target) || !record(first)) return false;
  if (!warmed_ && restored_ > 0) warm_up_again(first);
  warmed_ = true;
  if (first == 0 || shared_ != nullptr) warm_up(first);
  for (int r = 0; r < c_.repetitions && !stopped(); ++r) repeat(first, r);
  bool whole = has_all(first);
  for (int r = c_.repetitions; noisy() && r < kMaxNoiseFactor * c_.repetitions; ++r) {
    whole = whole && !stopped();
    if (!whole) break;
    total_ += std::ranges::count_if(state_.methods, &MethodState::is_measured);
    repeat(first, r);
  }
  measure_margins(first);
  measure_divergences(first);
  return whole;
}

void Measurement::measure_batch(int first, SharedPrefill& target) {
  if (first < restored_) return;
  resume();
  const bool failed = std::ranges::all_of(
      state_.methods, [](const MethodState& m) { return m.failed || !m.is_measured(); });
  const bool whole = !failed && !stopped() && open() && measure_open(first, target);
  pause();
  if (whole && state_.first_error == ExitCode::kOk) finish_batch(first);
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

namespace {

// Measurements of the same prompts and tuning prompts over one context.
struct OfSamePrompts {
  explicit OfSamePrompts(const MeasureInput& input)
      : prompts(input.workload.prompts),
        tuning_prompts(tuning_of(input.workload)),
        context(input.hooks.context) {}
  static std::span<const std::vector<Token>> tuning_of(const Workload& w) {
    return w.tuning_prompts.empty() ? w.prompts.first(1) : w.tuning_prompts;
  }
  bool has(const MeasureInput& input) const {
    return input.hooks.context == context && std::ranges::equal(input.workload.prompts, prompts) &&
           std::ranges::equal(tuning_of(input.workload), tuning_prompts);
  }

  std::span<const std::vector<Token>> prompts, tuning_prompts;
  int context;
  std::vector<Measurement*> measurements;
  SharedBaselines baselines;
};

// The shorter ones first: the longer ones may go on from them.
std::deque<OfSamePrompts> by_prompts(std::span<const MeasureInput> inputs) {
  std::deque<OfSamePrompts> groups;
  for (const MeasureInput& input : inputs) {
    TF_CHECK(!input.workload.prompts.empty());
    if (std::ranges::none_of(groups, [&](const OfSamePrompts& g) { return g.has(input); })) {
      groups.emplace_back(input);
    }
  }
  std::ranges::stable_sort(groups, {},
                           [](const OfSamePrompts& g) { return g.prompts.front().size(); });
  return groups;
}

}  // namespace

std::vector<RunResult> run_measurements(std::span<const MeasureInput> inputs) {
  TF_CHECK(!inputs.empty());
  std::deque<OfSamePrompts> groups = by_prompts(inputs);
  std::deque<Measurement> measurements;
  for (const MeasureInput& input : inputs) {
    TF_CHECK(inputs.size() == 1 || input.hooks.shares_context);
    TF_CHECK(input.facts.config->batch == inputs.front().facts.config->batch);
    OfSamePrompts& group =
        *std::ranges::find_if(groups, [&](const OfSamePrompts& g) { return g.has(input); });
    group.measurements.push_back(
        &measurements.emplace_back(input, input.hooks.shares_context ? &group.baselines : nullptr));
  }
  const auto device_failed = [&] {
    return std::ranges::any_of(measurements,
                               [](const Measurement& m) { return m.device_failed(); });
  };
  // visit(group, i) for the i-th prompts of all groups, and so on: those that go on from each other
  // follow each other.
  const auto for_each_prompt = [&](auto prompts_of, int step, const auto& visit) {
    int most = 0;
    for (const OfSamePrompts& g : groups) {
      most = std::max(most, static_cast<int>(std::ssize(g.*prompts_of)));
    }
    for (int p = 0; p < most; p += step) {
      for (OfSamePrompts& g : groups) {
        if (p < std::ssize(g.*prompts_of) && !device_failed()) visit(g, p);
      }
    }
  };
  ContextFill fill;
  for_each_prompt(&OfSamePrompts::tuning_prompts, 1, [&](OfSamePrompts& g, int p) {
    SharedPrefill target{fill, false, {}};
    const std::vector<Token>& tokens = g.tuning_prompts[static_cast<std::size_t>(p)];
    for (Measurement* m : g.measurements) {
      if (!device_failed()) m->tune(tokens, p + 1 == std::ssize(g.tuning_prompts), target);
    }
  });
  const int batch = inputs.front().facts.config->batch;
  for_each_prompt(&OfSamePrompts::prompts, batch, [&](OfSamePrompts& g, int p) {
    SharedPrefill target{fill, false, {}};
    for (const Measurement* m : g.measurements) {
      if (!target.ms) target.ms = m->recorded_prefill_ms(p);
    }
    for (Measurement* m : g.measurements) {
      if (!device_failed()) m->measure_batch(p, target);
    }
  });
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
