// From the recoveries that generations counted to that of a case.
#include <algorithm>
#include <limits>
#include <map>

#include "measure/measure_parts.h"
#include "statistics/statistics.h"

namespace triforce {
namespace {

RecoveryResult::Group group_result(const RecoveryCounters::Group& counted) {
  RecoveryResult::Group g;
  g.from_tokens = counted.from_tokens;
  g.to_tokens = std::max<std::int64_t>(2 * counted.from_tokens - 1, counted.from_tokens);
  g.rows = counted.rows;
  g.by_layer = counted.by_layer;
  for (double& x : g.by_layer) x /= static_cast<double>(counted.rows);
  g.mean = mean(g.by_layer);
  return g;
}

// What one prompt, or one of its repetitions, adds to the mean over rows and layers.
Share share_of(const RecoveryCounters& c) {
  return {mean(c.by_layer), static_cast<double>(c.rows)};
}

}  // namespace

std::optional<RecoveryResult> make_recovery(std::span<const MeasuredRun> runs, bool repeats) {
  RecoveryCounters all;
  std::map<int, std::vector<const RecoveryCounters*>> by_prompt;
  for (const MeasuredRun& r : runs) {
    if (r.warmup || !r.metrics.recovery || r.metrics.recovery->rows == 0) continue;
    all.merge(*r.metrics.recovery);
    by_prompt[r.prompt].push_back(&*r.metrics.recovery);
  }
  if (all.rows == 0) return std::nullopt;
  RecoveryResult out;
  const RecoveryResult::Group whole = group_result({0, all.rows, all.by_layer});
  out.rows = all.rows;
  out.mean = whole.mean;
  out.by_layer = whole.by_layer;
  constexpr std::size_t kDense = 2;  // layers of the paper's models that are not sparse
  if (out.by_layer.size() > kDense) {
    out.mean_from_layer_2 = mean(std::span<const double>(out.by_layer).subspan(kDense));
  }
  for (const RecoveryCounters::Group& g : all.by_age) out.by_age.push_back(group_result(g));
  const bool one = by_prompt.size() == 1;
  std::vector<Share> shares;
  for (const auto& [prompt, counters] : by_prompt) {
    RecoveryCounters of_prompt;
    for (const RecoveryCounters* c : counters) {
      if (one) shares.push_back(share_of(*c));
      of_prompt.merge(*c);
    }
    const Share share = share_of(of_prompt);
    out.by_prompt.push_back({prompt, of_prompt.rows, share.part / share.whole});
    if (!one) shares.push_back(share);
  }
  if (one && repeats) return out;
  // A row's share varies less than a token that is accepted or not: its spread is all that counts.
  const auto interval = proportion_interval(shares, std::numeric_limits<double>::infinity());
  if (!interval) return out;
  out.ci95_low = interval->low;
  out.ci95_high = interval->high;
  out.ci95_over = one ? IntervalOver::kRepetitions : IntervalOver::kPrompts;
  return out;
}

}  // namespace triforce
