#include "measure/measure_parts.h"

#include <algorithm>
#include <map>

#include "host/gpu_monitor.h"
#include "host/load_monitor.h"
#include "measure/level_intervals.h"

namespace triforce {
namespace {

void trim_untested(LevelCounters& level) {
  std::size_t tested = level.tested_at.size();
  while (tested > 0 && level.tested_at[tested - 1] == 0) --tested;
  level.tested_at.resize(tested);
  level.accepted_at.resize(tested);
  level.histogram.resize(std::min(level.histogram.size(), tested + 1));
}

std::optional<double> mean_length_per_request(const std::vector<MeasuredRun>& runs,
                                              std::size_t level) {
  double sum = 0, generations = 0;
  for (const MeasuredRun& r : runs) {
    if (r.warmup || level >= r.metrics.levels.size() || r.metrics.levels[level].rounds == 0) {
      continue;
    }
    sum += r.metrics.levels[level].mean_accepted_length();
    ++generations;
  }
  return generations > 0 ? std::optional(sum / generations) : std::nullopt;
}

}  // namespace

std::vector<std::size_t> interleaved_order(std::size_t methods, int repetition) {
  std::vector<std::size_t> order(methods);
  for (std::size_t i = 0; i < methods; ++i) order[i] = repetition % 2 == 0 ? i : methods - 1 - i;
  return order;
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

std::vector<LevelResult> make_acceptance(const std::vector<MeasuredRun>& runs, bool repeats) {
  std::map<int, std::vector<const MeasuredRun*>> by_prompt;
  for (const MeasuredRun& r : runs) {
    if (!r.warmup && !r.metrics.levels.empty()) by_prompt[r.prompt].push_back(&r);
  }
  std::vector<LevelResult> levels;
  for (LevelCounters& sum : merged_levels(runs)) {
    const std::size_t i = levels.size();
    LevelResult& level = levels.emplace_back();
    static_cast<LevelCounters&>(level) = std::move(sum);
    level.mean_accepted_length_per_request = mean_length_per_request(runs, i);
    const bool one = by_prompt.size() == 1;
    if (one && repeats) continue;
    std::vector<LevelCounters> counters;
    double generations = 0;
    for (const auto& [prompt, of_prompt] : by_prompt) {
      if (!one) counters.emplace_back();
      for (const MeasuredRun* r : of_prompt) {
        if (one) counters.emplace_back();
        if (i < r->metrics.levels.size()) counters.back().merge(r->metrics.levels[i]);
        ++generations;
      }
    }
    level.ci95 =
        level_intervals(counters, one ? IntervalOver::kRepetitions : IntervalOver::kPrompts,
                        repeats ? static_cast<double>(by_prompt.size()) / generations : 1.0);
  }
  return levels;
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
  if (context.load) {
    const int threads = context.gpu_name ? 1 : context.threads;
    for (std::string& reason : disturbances(*context.load, threads)) {
      reasons.push_back(std::move(reason));
    }
  }
  if (context.measured_read_gbs && context.measured_read_gbs_after) {
    const double before = *context.measured_read_gbs, after = *context.measured_read_gbs_after;
    if (std::min(before, after) < kSameBandwidth * std::max(before, after)) {
      reasons.push_back(
          fmt::format("the memory's read bandwidth was {:.3g} GB/s before and {:.3g} GB/s after",
                      before, after));
    }
  }
  return reasons;
}

}  // namespace triforce
