#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "measure/measure_parts.h"
#include "statistics/statistics.h"

namespace triforce {
namespace {

double ms_per_token(const RunMetrics& m) {
  return m.decode_ms / static_cast<double>(m.tokens.size());
}

// nullopt: it is not known of this prompt.
std::optional<double> of_prompt(const std::vector<double>& by_prompt, int prompt) {
  const auto i = static_cast<std::size_t>(prompt);
  return i < by_prompt.size() ? std::optional(by_prompt[i]) : std::nullopt;
}

std::optional<double> value_of(const std::optional<Estimate>& estimate) {
  return estimate ? std::optional(estimate->value) : std::nullopt;
}

// Timed runs that generated something.
template <class Visit>
void for_each_timed(std::span<const MeasuredRun> runs, const Visit& visit) {
  for (const MeasuredRun& r : runs) {
    if (!r.warmup && !r.metrics.tokens.empty()) visit(r);
  }
}

std::optional<double> fraction(double achieved, const std::optional<double>& measured) {
  return measured && *measured > 0 ? std::optional(achieved / *measured) : std::nullopt;
}

Sample to_sample(const MeasuredRun& r, int batch) {
  Sample s;
  s.prompt = r.prompt;
  if (batch > 1) s.batch = r.prompt / batch;
  s.repetition = r.repetition;
  s.warmup = r.warmup;
  s.seed = r.seed;
  s.tokens = static_cast<std::int64_t>(r.metrics.tokens.size());
  s.rounds = r.metrics.rounds;
  s.rebuilds = r.metrics.rebuilds;
  s.decode_ms = r.metrics.decode_ms;
  s.energy = r.energy;
  s.stopped_at_eos = r.metrics.stopped_at_eos;
  s.generated_in = r.generated_in;
  s.tokens_sha256 = tokens_sha256(r.metrics.tokens);
  s.levels = r.metrics.levels;
  return s;
}

}  // namespace

std::optional<PhaseTimes> phases_per_round(const MethodSpec& method,
                                           const std::vector<MeasuredRun>& runs) {
  PhaseTimes sum{};
  std::int64_t rounds = 0;
  for_each_timed(runs, [&](const MeasuredRun& r) {
    rounds += r.metrics.rounds;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += r.metrics.phase_ms[i];
  });
  if (rounds == 0) return std::nullopt;
  for (double& ms : sum) ms /= static_cast<double>(rounds);
  for (const PassSpec& p : kPassTable) {
    if (!method.uses(p.pass)) sum[static_cast<std::size_t>(p.pass)] = NAN;
  }
  return sum;
}

std::vector<double> preparation_ms(const MethodSpec& method,
                                   const std::vector<PrefillMetrics>& prefills) {
  std::vector<double> ms;
  ms.reserve(prefills.size());
  for (const PrefillMetrics& p : prefills) {
    double sum = 0;
    for (const PassSpec& pass : kPassTable) {
      if (pass.pass == kFullPass || method.uses(pass.pass)) sum += p.fill_ms[pass.pass].value_or(0);
    }
    ms.push_back(sum);
  }
  return ms;
}

Timing make_timing(const std::vector<MeasuredRun>& runs, const std::vector<double>& preparation,
                   const std::function<double(const RunMetrics&)>& bytes_of, int batch) {
  Timing timing;
  ByPrompt times, per_byte, prepared, whole;
  timing.samples.reserve(runs.size());
  for (const MeasuredRun& r : runs) timing.samples.push_back(to_sample(r, batch));
  for_each_timed(runs, [&](const MeasuredRun& r) {
    const int decoded_in = r.prompt / batch;
    times[decoded_in].push_back(ms_per_token(r.metrics));
    per_byte[r.prompt].push_back(r.metrics.decode_ms / bytes_of(r.metrics));
    if (const auto before = of_prompt(preparation, r.prompt)) {
      prepared[decoded_in] = {*before};
      whole[decoded_in].push_back(*before + r.metrics.decode_ms);
    }
  });
  timing.ms_per_token = summarize(groups_of(std::move(times)));
  timing.tokens_per_s = tokens_per_s(timing.samples);
  timing.preparation_ms = value_of(geometric_mean(groups_of(std::move(prepared))));
  timing.end_to_end_ms = value_of(geometric_mean(groups_of(std::move(whole))));
  timing.noise_pct = noise_percent(groups_of(std::move(per_byte)));
  return timing;
}

namespace {

// Both of a pair, by the batch that they were decoded in.
struct Pairs {
  ByPrompt baseline, other;
  void add(int batch, double of_baseline, double of_other) {
    baseline[batch].push_back(of_baseline);
    other[batch].push_back(of_other);
  }
};

// Generated tokens after which what was prepared longer has been gained back.
std::optional<std::int64_t> break_even(const std::optional<Estimate>& longer_ms,
                                       const std::optional<Estimate>& shorter_ms,
                                       double baseline_ms_per_token, double ms_per_token) {
  const double gain = baseline_ms_per_token - ms_per_token;
  if (!longer_ms || !shorter_ms || !(gain > 0)) return std::nullopt;
  const double tokens = std::max(0.0, std::ceil((longer_ms->value - shorter_ms->value) / gain));
  constexpr double kMost = 1e15;  // more is never
  if (!(tokens < kMost)) return std::nullopt;
  return static_cast<std::int64_t>(tokens);
}

}  // namespace

std::optional<Speedup> make_speedup(const PreparedRuns& baseline, const PreparedRuns& other,
                                    int batch) {
  std::map<std::pair<int, int>, const MeasuredRun*> of_baseline;
  for_each_timed(baseline.runs, [&](const MeasuredRun& r) {
    of_baseline[{r.prompt, r.repetition}] = &r;
  });
  Pairs times, prepared, whole;
  for_each_timed(other.runs, [&](const MeasuredRun& r) {
    const auto b = of_baseline.find({r.prompt, r.repetition});
    if (b == of_baseline.end()) return;
    const RunMetrics &base = b->second->metrics, &run = r.metrics;
    const int decoded_in = r.prompt / batch;
    times.add(decoded_in, ms_per_token(base), ms_per_token(run));
    const auto before_base = of_prompt(baseline.preparation, r.prompt);
    const auto before_run = of_prompt(other.preparation, r.prompt);
    if (!before_base || !before_run) return;
    prepared.add(decoded_in, *before_base, *before_run);
    whole.add(decoded_in, *before_base + base.decode_ms, *before_run + run.decode_ms);
  });
  const auto base_times = groups_of(std::move(times.baseline));
  const auto other_times = groups_of(std::move(times.other));
  const auto speedup = ratio_interval(base_times, other_times);
  if (!speedup) return std::nullopt;
  Speedup s;
  s.baseline = to_string(kBaselineMethod);
  s.value = speedup->value;
  if (speedup->interval) {
    s.ci95_low = speedup->interval->low;
    s.ci95_high = speedup->interval->high;
    s.ci95_over = speedup->over;
  }
  const auto generations =
      ratio_interval(groups_of(std::move(whole.baseline)), groups_of(std::move(whole.other)));
  if (!generations) return s;
  s.end_to_end = generations->value;
  if (generations->interval) {
    s.end_to_end_ci95_low = generations->interval->low;
    s.end_to_end_ci95_high = generations->interval->high;
  }
  s.break_even_tokens =
      break_even(geometric_mean(groups_of(std::move(prepared.other))),
                 geometric_mean(groups_of(std::move(prepared.baseline))),
                 geometric_mean(base_times)->value, geometric_mean(other_times)->value);
  return s;
}

std::vector<PassCount> count_passes(const MethodSpec& method, const RunMetrics& run,
                                    const PerPass<PassWork>& bytes, std::int64_t context) {
  std::vector<PassCount> passes;
  if (run.levels.size() != static_cast<std::size_t>(method.levels())) return passes;
  for (int i = 0; i < method.n_passes; ++i) {
    const LevelCounters* const level =
        i == 0 ? nullptr : &run.levels[static_cast<std::size_t>(i) - 1];
    const std::int64_t n = level == nullptr ? passes_of_proposer(method, run) : level->rounds;
    const std::int64_t rows = level == nullptr ? 0 : n + level->drafted;
    const Pass pass = method.pass(i);
    passes.push_back({pass, n, bytes[pass].at(context), bytes[pass].far_at(context),
                      method.levels() == 0 ? n : rows});
  }
  return passes;
}

namespace {

// Passes of some runs, by their number in the chain, and the times of phases.
class TimedPasses {
 public:
  void add(const std::vector<PassCount>& counts, const PhaseTimes& times) {
    passes_.resize(std::max(passes_.size(), counts.size()));
    rows_.resize(passes_.size());
    for (std::size_t i = 0; i < counts.size(); ++i) {
      passes_[i] += static_cast<double>(counts[i].passes);
      rows_[i] += static_cast<double>(counts[i].rows);
    }
    for (std::size_t i = 0; i < ms_.size(); ++i) ms_[i] += times[i];
  }
  double count(std::size_t pass) const { return passes_[pass]; }
  // Of one prompt.
  std::optional<double> rows_per_pass(std::size_t i) const {
    return rows_[i] > 0 ? std::optional(rows_[i] / passes_[i]) : std::nullopt;
  }
  // Of the i-th of the chain.
  std::optional<double> ms_per_pass(std::size_t i, Pass pass) const {
    const double ms = ms_[static_cast<std::size_t>(phase_of(pass))];
    const double n = i < passes_.size() ? passes_[i] : 0;
    return n > 0 && ms > 0 ? std::optional(ms / n) : std::nullopt;
  }

 private:
  PhaseTimes ms_{};
  std::vector<double> passes_, rows_;
};

// Sets what the machine allows a pass whose other fields are known.
void set_bound(PassTraffic& t, const ResultContext& measured) {
  if (!t.operations_per_pass || !(measured.measured_read_gbs.value_or(0) > 0)) return;
  t.bound_ms = 0;
  const auto takes = [&t](double work, const std::optional<double>& per_ns) {
    if (per_ns && *per_ns > 0) t.bound_ms = std::max(*t.bound_ms, work / *per_ns / 1e6);
  };
  takes(static_cast<double>(t.bytes_per_pass), measured.measured_read_gbs);
  takes(static_cast<double>(t.bus_bytes_per_pass), measured.measured_h2d_gbs);
  takes(*t.operations_per_pass, measured.measured_gemm_gflops);
  t.fraction_bound = fraction(*t.bound_ms, t.ms_per_pass);
}

}  // namespace

std::vector<PassTraffic> make_traffic(const MethodSpec& method,
                                      const std::vector<MeasuredRun>& runs,
                                      const PerPass<PassWork>& bytes, std::int64_t context,
                                      const ResultContext& measured) {
  std::vector<PassCount> kinds;  // of a run
  TimedPasses all;
  std::map<int, TimedPasses> by_prompt;
  std::int64_t tokens = 0;
  for_each_timed(runs, [&](const MeasuredRun& r) {
    std::vector<PassCount> passes = count_passes(method, r.metrics, bytes, context);
    all.add(passes, r.metrics.phase_ms);
    by_prompt[r.prompt].add(passes, r.metrics.phase_ms);
    tokens += static_cast<std::int64_t>(r.metrics.tokens.size());
    if (kinds.empty()) kinds = std::move(passes);
  });
  std::vector<PassTraffic> traffic;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const PassCount& kind = kinds[i];
    PassTraffic t;
    t.pass = to_string(kind.pass);
    t.bytes_per_pass = kind.bytes_per_pass;
    t.bus_bytes_per_pass = kind.bus_bytes_per_pass;
    t.passes_per_token = all.count(i) / static_cast<double>(tokens);
    t.ms_per_pass = all.ms_per_pass(i, kind.pass);
    const PassWork& work = bytes[kind.pass];
    t.rows_per_pass = all.rows_per_pass(i);
    if (t.rows_per_pass) t.rows_per_pass = *t.rows_per_pass * work.lanes;
    if (t.rows_per_pass && work.row_operations > 0) {
      t.operations_per_pass = work.operations_at(context, *t.rows_per_pass);
    }
    set_bound(t, measured);
    if (t.ms_per_pass && t.bytes_per_pass > 0) {
      t.achieved_gbs = static_cast<double>(t.bytes_per_pass) / *t.ms_per_pass / 1e6;
      t.fraction_read = fraction(*t.achieved_gbs, measured.measured_read_gbs);
      if (t.bus_bytes_per_pass > 0) {
        t.bus_gbs = static_cast<double>(t.bus_bytes_per_pass) / *t.ms_per_pass / 1e6;
        t.fraction_h2d = fraction(*t.bus_gbs, measured.measured_h2d_gbs);
      }
    }
    for (const auto& [prompt, of_prompt] : by_prompt) {
      constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
      t.ms_per_pass_of_prompt.resize(static_cast<std::size_t>(prompt) + 1, kNone);
      t.ms_per_pass_of_prompt.back() = of_prompt.ms_per_pass(i, kind.pass).value_or(kNone);
    }
    traffic.push_back(std::move(t));
  }
  return traffic;
}

}  // namespace triforce
