#include "measure/measure_parts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "core/sha256.h"
#include "host/gpu_monitor.h"
#include "measure/statistics.h"

namespace triforce {
namespace {

double ms_per_token(const RunMetrics& m) {
  return m.decode_ms / static_cast<double>(m.tokens.size());
}

// Timed runs that generated something.
template <class Visit>
void for_each_timed(const std::vector<MeasuredRun>& runs, const Visit& visit) {
  for (const MeasuredRun& r : runs) {
    if (!r.warmup && !r.metrics.tokens.empty()) visit(r);
  }
}

std::optional<double> fraction(double achieved, const std::optional<double>& measured) {
  return measured && *measured > 0 ? std::optional(achieved / *measured) : std::nullopt;
}

void trim_untested(LevelCounters& level) {
  std::size_t tested = level.tested_at.size();
  while (tested > 0 && level.tested_at[tested - 1] == 0) --tested;
  level.tested_at.resize(tested);
  level.accepted_at.resize(tested);
  level.histogram.resize(std::min(level.histogram.size(), tested + 1));
}

std::optional<Token> token_at(const std::vector<Token>& tokens, std::int64_t i) {
  if (i >= static_cast<std::int64_t>(tokens.size())) return std::nullopt;
  return tokens[static_cast<std::size_t>(i)];
}

Sample to_sample(const MeasuredRun& r) {
  Sample s;
  s.prompt = r.prompt;
  s.repetition = r.repetition;
  s.warmup = r.warmup;
  s.seed = r.seed;
  s.tokens = static_cast<std::int64_t>(r.metrics.tokens.size());
  s.rounds = r.metrics.rounds;
  s.rebuilds = r.metrics.rebuilds;
  s.decode_ms = r.metrics.decode_ms;
  s.stopped_at_eos = r.metrics.stopped_at_eos;
  s.tokens_sha256 = tokens_sha256(r.metrics.tokens);
  s.levels = r.metrics.levels;
  return s;
}

}  // namespace

std::string tokens_sha256(std::span<const Token> tokens) {
  static_assert(std::endian::native == std::endian::little);
  return sha256_hex(std::as_bytes(tokens));
}

std::vector<std::size_t> interleaved_order(std::size_t methods, int repetition) {
  std::vector<std::size_t> order(methods);
  for (std::size_t i = 0; i < methods; ++i) order[i] = repetition % 2 == 0 ? i : methods - 1 - i;
  return order;
}

std::optional<std::int64_t> first_difference(std::span<const Token> a, std::span<const Token> b) {
  const auto [at, _] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto i = at - a.begin();
  if (a.size() == b.size() && at == a.end()) return std::nullopt;
  return static_cast<std::int64_t>(i);
}

LosslessMode lossless_mode(const SpeculationOptions& options, const MethodSpec& method) {
  if (method.levels() == 0) return LosslessMode::kBaseline;
  if (options.synthetic) return LosslessMode::kNone;
  const bool same_stream =
      options.sampling.temperature == 0 || options.acceptance == Acceptance::kCoupled;
  return same_stream ? LosslessMode::kTokens : LosslessMode::kDistribution;
}

bool exact_rule(const SpeculationOptions& options, const MethodSpec& method) {
  return method.levels() < 2 || options.inner_correction == Correction::kResidual ||
         options.acceptance == Acceptance::kCoupled;
}

const MeasuredRun* find_timed(const std::vector<MeasuredRun>& runs, int prompt, int repetition) {
  const auto it = std::find_if(runs.begin(), runs.end(), [&](const MeasuredRun& r) {
    return !r.warmup && r.prompt == prompt && r.repetition == repetition;
  });
  return it == runs.end() ? nullptr : &*it;
}

Lossless compare_streams(const std::vector<MeasuredRun>* baseline,
                         const std::vector<MeasuredRun>& runs, LosslessMode mode) {
  Lossless out;
  out.mode = mode;
  if (mode != LosslessMode::kTokens || baseline == nullptr) return out;
  for (const MeasuredRun& run : runs) {
    if (run.warmup) continue;
    const MeasuredRun* expected = find_timed(*baseline, run.prompt, run.repetition);
    if (expected == nullptr) continue;
    ++out.compared;
    const std::vector<Token>&a = expected->metrics.tokens, &b = run.metrics.tokens;
    const auto at = first_difference(a, b);
    if (!at || out.first_divergence) continue;
    out.first_divergence =
        Divergence{run.prompt, run.repetition, *at, token_at(a, *at), token_at(b, *at)};
  }
  if (out.compared > 0) out.equal_to_baseline = !out.first_divergence.has_value();
  return out;
}

void top_of(std::span<const float> probs, std::size_t n, std::vector<Token>& tokens,
            std::vector<double>& values) {
  tokens.clear();
  values.clear();
  for (std::size_t i = 0; i < probs.size(); ++i)
    if (probs[i] > 0) tokens.push_back(static_cast<Token>(i));
  const auto p = [&](Token t) { return probs[static_cast<std::size_t>(t)]; };
  const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(std::min(n, tokens.size()));
  std::partial_sort(tokens.begin(), end, tokens.end(),
                    [&](Token a, Token b) { return p(a) > p(b) || (p(a) == p(b) && a < b); });
  tokens.erase(end, tokens.end());
  values.reserve(tokens.size());
  for (const Token t : tokens) values.push_back(double{p(t)});
}

std::vector<LevelCounters> merged_levels(const std::vector<MeasuredRun>& runs) {
  std::vector<LevelCounters> merged;
  for (const MeasuredRun& run : runs) {
    if (run.warmup) continue;
    merged.resize(std::max(merged.size(), run.metrics.levels.size()));
    for (std::size_t i = 0; i < run.metrics.levels.size(); ++i) {
      merged[i].merge(run.metrics.levels[i]);
    }
  }
  for (LevelCounters& level : merged) trim_untested(level);
  return merged;
}

std::optional<PhaseTimes> phases_per_round(const std::vector<MeasuredRun>& runs) {
  PhaseTimes sum{};
  std::int64_t rounds = 0;
  for_each_timed(runs, [&](const MeasuredRun& r) {
    rounds += r.metrics.rounds;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += r.metrics.phase_ms[i];
  });
  if (rounds == 0) return std::nullopt;
  for (double& ms : sum) ms /= static_cast<double>(rounds);
  return sum;
}

Timing make_timing(const std::vector<MeasuredRun>& runs, std::uint64_t seed,
                   const std::function<double(const RunMetrics&)>& bytes_of) {
  Timing timing;
  std::vector<double> times;
  std::map<int, std::vector<double>> per_byte;  // by prompt
  timing.samples.reserve(runs.size());
  for (const MeasuredRun& r : runs) timing.samples.push_back(to_sample(r));
  for_each_timed(runs, [&](const MeasuredRun& r) {
    times.push_back(ms_per_token(r.metrics));
    per_byte[r.prompt].push_back(r.metrics.decode_ms / bytes_of(r.metrics));
  });
  timing.ms_per_token = summarize(times, seed);
  if (timing.ms_per_token.median) timing.tokens_per_s = 1000.0 / *timing.ms_per_token.median;
  std::vector<std::vector<double>> groups;
  groups.reserve(per_byte.size());
  for (auto& [prompt, values] : per_byte) groups.push_back(std::move(values));
  timing.noise_pct = noise_percent(groups);
  return timing;
}

std::optional<Speedup> make_speedup(const std::vector<MeasuredRun>& baseline,
                                    const std::vector<MeasuredRun>& runs, std::uint64_t seed) {
  std::vector<double> top, bottom;
  for_each_timed(runs, [&](const MeasuredRun& r) {
    const MeasuredRun* b = find_timed(baseline, r.prompt, r.repetition);
    if (b == nullptr || b->metrics.tokens.empty()) return;
    top.push_back(ms_per_token(b->metrics));
    bottom.push_back(ms_per_token(r.metrics));
  });
  const auto estimate = median_ratio(top, bottom, seed);
  if (!estimate) return std::nullopt;
  Speedup s;
  s.baseline = to_string(kBaselineMethod);
  s.value = estimate->value;
  if (estimate->interval) {
    s.ci95_low = estimate->interval->low;
    s.ci95_high = estimate->interval->high;
  }
  return s;
}

std::vector<PassCount> count_passes(const MethodSpec& method, const RunMetrics& run,
                                    const PerPass<PassBytes>& bytes, std::int64_t context) {
  std::vector<PassCount> passes;
  if (run.levels.size() != static_cast<std::size_t>(method.levels())) return passes;
  for (int i = 0; i < method.n_passes; ++i) {
    // The proposer runs one pass for each token it drafts, a verifier one a round.
    const std::int64_t n = method.levels() == 0 ? run.rounds
                           : i == 0             ? run.levels.front().drafted
                                    : run.levels[static_cast<std::size_t>(i) - 1].rounds;
    const Pass pass = method.chain[static_cast<std::size_t>(i)];
    passes.push_back({method.phase(i), n, bytes[pass].at(context), bytes[pass].far_at(context)});
  }
  return passes;
}

void set_plan(const MemoryPlan& plan, MemoryResult& memory) {
  memory.planned = TaggedBytes{plan.bytes};
  memory.near_kv_heads = plan.kv_heads.near;
  memory.bus_kv_heads = plan.kv_heads.bus;
  memory.host_kv_heads = plan.kv_heads.host;
}

std::vector<double> alphas_of(const std::vector<LevelCounters>& levels) {
  std::vector<double> alphas;
  alphas.reserve(levels.size());
  for (const LevelCounters& level : levels) alphas.push_back(level.alpha());
  return alphas;
}

std::vector<PassTraffic> make_traffic(const MethodSpec& method,
                                      const std::vector<MeasuredRun>& runs,
                                      const PerPass<PassBytes>& bytes, std::int64_t context,
                                      const ResultContext& measured) {
  std::vector<PassCount> sums;
  PhaseTimes ms{};
  std::int64_t tokens = 0;
  for_each_timed(runs, [&](const MeasuredRun& r) {
    const std::vector<PassCount> passes = count_passes(method, r.metrics, bytes, context);
    if (sums.empty()) {
      sums = passes;
    } else {
      for (std::size_t i = 0; i < std::min(sums.size(), passes.size()); ++i)
        sums[i].passes += passes[i].passes;
    }
    for (std::size_t i = 0; i < ms.size(); ++i) ms[i] += r.metrics.phase_ms[i];
    tokens += static_cast<std::int64_t>(r.metrics.tokens.size());
  });
  std::vector<PassTraffic> traffic;
  for (const PassCount& sum : sums) {
    PassTraffic t;
    t.pass = to_string(sum.phase);
    t.bytes_per_pass = sum.bytes_per_pass;
    t.bus_bytes_per_pass = sum.bus_bytes_per_pass;
    t.passes_per_token = static_cast<double>(sum.passes) / static_cast<double>(tokens);
    const double total_ms = ms[static_cast<std::size_t>(sum.phase)];
    if (sum.passes > 0 && total_ms > 0) {
      t.ms_per_pass = total_ms / static_cast<double>(sum.passes);
      t.achieved_gbs = static_cast<double>(t.bytes_per_pass) / *t.ms_per_pass / 1e6;
      t.fraction_read = fraction(*t.achieved_gbs, measured.measured_read_gbs);
      if (t.bus_bytes_per_pass > 0) {
        t.bus_gbs = static_cast<double>(t.bus_bytes_per_pass) / *t.ms_per_pass / 1e6;
        t.fraction_h2d = fraction(*t.bus_gbs, measured.measured_h2d_gbs);
      }
    }
    traffic.push_back(std::move(t));
  }
  return traffic;
}

std::vector<std::string> build_reasons(const ResultContext& context) {
  std::vector<std::string> reasons;
  if (context.build_type != "Release" && context.build_type != "RelWithDebInfo") {
    reasons.push_back(fmt::format("build type {}, not Release", context.build_type));
  }
  std::vector<std::string> throttled =
      context.throttle_reasons.value_or(std::vector<std::string>());
  std::erase(throttled, kPowerCap);
  if (!throttled.empty()) {
    reasons.push_back(fmt::format("throttled clocks: {}", fmt::join(throttled, ", ")));
  }
  return reasons;
}

bool unequal_counts(const std::vector<const std::vector<MeasuredRun>*>& methods) {
  std::map<std::pair<int, int>, std::size_t> counts;
  for (const auto* runs : methods) {
    for (const MeasuredRun& r : *runs) {
      if (r.warmup) continue;
      const std::size_t n = r.metrics.tokens.size();
      if (counts.emplace(std::pair{r.prompt, r.repetition}, n).first->second != n) return true;
    }
  }
  return false;
}

}  // namespace triforce
