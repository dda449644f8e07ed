#include "measure/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "triforce/random.h"

namespace triforce {
namespace {

double median_in_place(std::span<double> samples) {
  TF_CHECK(!samples.empty());
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  if (samples.size() % 2 == 1) return *middle;
  return 0.5 * (*std::max_element(samples.begin(), middle) + *middle);
}

// Indices of one resample: a pure function of (seed, resample), so that intervals repeat.
void draw_indices(std::uint64_t seed, std::uint32_t resample, std::span<std::size_t> out) {
  constexpr std::uint32_t kBootstrapStream = 0x626f6f74;
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i % 4 == 0) {
      words = {static_cast<std::uint32_t>(i / 4), resample, kBootstrapStream, 0};
      philox4x32_10(words.data(), static_cast<std::uint32_t>(seed),
                    static_cast<std::uint32_t>(seed >> 32));
    }
    out[i] = static_cast<std::size_t>((std::uint64_t{words[i % 4]} * out.size()) >> 32);
  }
}

// 2.5% and 97.5% quantiles of statistic(indices) over the resamples.
template <class Statistic>
Interval bootstrap(std::size_t n, std::uint64_t seed, const Statistic& statistic) {
  std::vector<std::size_t> indices(n);
  std::vector<double> values(kBootstrapResamples);
  for (std::uint32_t r = 0; r < kBootstrapResamples; ++r) {
    draw_indices(seed, r, indices);
    values[r] = statistic(indices);
  }
  std::sort(values.begin(), values.end());
  return {quantile(values, 0.025), quantile(values, 0.975)};
}

double median_of(std::span<const double> samples, std::span<const std::size_t> indices,
                 std::vector<double>& scratch) {
  scratch.clear();
  for (const std::size_t i : indices) scratch.push_back(samples[i]);
  return median_in_place(scratch);
}

}  // namespace

double quantile(std::span<const double> ascending, double p) {
  TF_CHECK(!ascending.empty() && p >= 0 && p <= 1);
  const double at = p * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  const double weight = at - static_cast<double>(below);
  return ascending[below] + weight * (ascending[above] - ascending[below]);
}

double median(std::span<const double> samples) {
  std::vector<double> copy(samples.begin(), samples.end());
  return median_in_place(copy);
}

double mean(std::span<const double> samples) {
  TF_CHECK(!samples.empty());
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

std::optional<double> stddev(std::span<const double> samples) {
  if (samples.size() < 2) return std::nullopt;
  const double m = mean(samples);
  double sum = 0;
  for (const double x : samples) sum += (x - m) * (x - m);
  return std::sqrt(sum / static_cast<double>(samples.size() - 1));
}

std::optional<Interval> bootstrap_median(std::span<const double> samples, std::uint64_t seed) {
  if (static_cast<std::int64_t>(samples.size()) < kMinIntervalSamples) return std::nullopt;
  std::vector<double> scratch;
  return bootstrap(samples.size(), seed, [&](std::span<const std::size_t> indices) {
    return median_of(samples, indices, scratch);
  });
}

std::optional<RatioEstimate> median_ratio(std::span<const double> baseline,
                                          std::span<const double> other, std::uint64_t seed) {
  TF_CHECK(baseline.size() == other.size(), "{} pairs with {}", baseline.size(), other.size());
  if (baseline.empty()) return std::nullopt;
  RatioEstimate estimate{median(baseline) / median(other), std::nullopt};
  if (static_cast<std::int64_t>(baseline.size()) >= kMinIntervalSamples) {
    std::vector<double> scratch;
    estimate.interval = bootstrap(baseline.size(), seed, [&](std::span<const std::size_t> indices) {
      const double top = median_of(baseline, indices, scratch);
      return top / median_of(other, indices, scratch);
    });
  }
  return estimate;
}

Distribution summarize(std::span<const double> samples, std::uint64_t seed) {
  Distribution d;
  d.n = static_cast<std::int64_t>(samples.size());
  if (samples.empty()) return d;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  d.mean = mean(sorted);
  d.median = median(sorted);
  d.stddev = stddev(sorted);
  d.min = sorted.front();
  d.max = sorted.back();
  if (d.n >= 10) d.p90 = quantile(sorted, 0.90);
  if (d.n >= 20) d.p95 = quantile(sorted, 0.95);
  if (d.n >= 100) d.p99 = quantile(sorted, 0.99);
  // In the given order: the resamples of median_ratio pick the same samples.
  if (const auto interval = bootstrap_median(samples, seed)) {
    d.ci95_low = interval->low;
    d.ci95_high = interval->high;
  }
  return d;
}

std::optional<double> noise_percent(std::span<const std::vector<double>> groups) {
  double sum = 0, freedom = 0;
  for (const std::vector<double>& group : groups) {
    const auto deviation = stddev(group);
    const double m = group.empty() ? 0 : mean(group);
    if (!deviation || !(m > 0)) continue;
    const auto weight = static_cast<double>(group.size() - 1);
    sum += weight * (*deviation / m) * (*deviation / m);
    freedom += weight;
  }
  if (freedom == 0) return std::nullopt;
  return 100.0 * std::sqrt(sum / freedom);
}

}  // namespace triforce
