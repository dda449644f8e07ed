// From the divergences of generations to that of a case.
#include <algorithm>

#include "measure/measure_parts.h"
#include "statistics/statistics.h"

namespace triforce {

std::optional<DivergenceResult> make_divergence(std::span<const MeasuredRun> runs) {
  DivergenceResult d;
  std::vector<double> means, counts;
  for (const MeasuredRun& r : runs) {
    const std::vector<double>& values = r.metrics.divergence;
    if (r.warmup || values.empty()) continue;
    means.push_back(mean(values));
    d.by_prompt.push_back({r.prompt, std::ssize(values), means.back()});
    if (values.size() > d.by_position.size()) d.by_position.resize(values.size());
    counts.resize(d.by_position.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      d.by_position[i] += values[i];
      ++counts[i];
    }
  }
  if (means.empty()) return std::nullopt;
  for (std::size_t i = 0; i < counts.size(); ++i) d.by_position[i] /= counts[i];
  d.mean = mean(means);
  if (means.size() > 1) {
    const Interval interval = mean_interval(means);
    d.ci95_low = std::max(0.0, interval.low);
    d.ci95_high = interval.high;
  }
  return d;
}

}  // namespace triforce
