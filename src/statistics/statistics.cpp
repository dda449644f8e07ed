#include "statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace triforce {
namespace {

// geometric_mean() of what has these logarithms.
std::optional<Estimate> of_logarithms(SamplesByPrompt prompts) {
  std::vector<double> means;
  std::span<const double> only;
  for (const std::vector<double>& logs : prompts) {
    if (logs.empty()) continue;
    only = logs;
    means.push_back(mean(logs));
  }
  if (means.empty() || !std::isfinite(mean(means))) return std::nullopt;
  Estimate e;
  e.value = std::exp(mean(means));
  if (means.size() == 1) {
    e.over = IntervalOver::kRepetitions;
    means.assign(only.begin(), only.end());
  }
  if (means.size() < 2) return e;
  const Interval logs = mean_interval(means);
  e.interval = Interval{std::exp(logs.low), std::exp(logs.high)};
  return e;
}

// Wilson's interval of a rate p over n independent trials.
Interval wilson(double p, double n) {
  const double z2 = kNormal95 * kNormal95, middle = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double half = kNormal95 / (1 + z2 / n) * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

}  // namespace

Interval mean_interval(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  const double half =
      student_t95(std::ssize(values) - 1) * stddev(values).value_or(0) / std::sqrt(n);
  return {mean(values) - half, mean(values) + half};
}

double quantile(std::span<const double> ascending, double p) {
  TF_CHECK(!ascending.empty() && p >= 0 && p <= 1);
  const double at = p * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  const double weight = at - static_cast<double>(below);
  return ascending[below] + weight * (ascending[above] - ascending[below]);
}

double median(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  return quantile(sorted, 0.5);
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

std::vector<std::vector<double>> groups_of(ByPrompt&& samples) {
  std::vector<std::vector<double>> groups;
  groups.reserve(samples.size());
  for (auto& [prompt, of_prompt] : samples) groups.push_back(std::move(of_prompt));
  return groups;
}

std::optional<Estimate> geometric_mean(SamplesByPrompt prompts) {
  std::vector<std::vector<double>> logs(prompts.begin(), prompts.end());
  for (std::vector<double>& of_prompt : logs) {
    for (double& x : of_prompt) x = std::log(x);
  }
  return of_logarithms(logs);
}

std::optional<Estimate> ratio_interval(SamplesByPrompt baseline, SamplesByPrompt other) {
  TF_CHECK(baseline.size() == other.size(), "{} prompts with {}", baseline.size(), other.size());
  std::vector<std::vector<double>> logs(baseline.begin(), baseline.end());
  for (std::size_t p = 0; p < logs.size(); ++p) {
    TF_CHECK(logs[p].size() == other[p].size(), "{} pairs with {}", logs[p].size(),
             other[p].size());
    for (std::size_t i = 0; i < logs[p].size(); ++i) {
      logs[p][i] = std::log(logs[p][i] / other[p][i]);
    }
  }
  return of_logarithms(logs);
}

std::optional<Interval> proportion_interval(std::span<const Share> prompts, double trials) {
  Share sum;
  std::int64_t n = 0;
  for (const Share& s : prompts) {
    if (!(s.whole > 0)) continue;
    sum.part += s.part;
    sum.whole += s.whole;
    ++n;
  }
  if (n < 2) return std::nullopt;
  std::vector<double> without;  // the rate without one of the prompts
  for (const Share& s : prompts) {
    if (s.whole > 0) without.push_back((sum.part - s.part) / (sum.whole - s.whole));
  }
  const double p = std::clamp(sum.part / sum.whole, 0.0, 1.0), middle = mean(without);
  double variance = 0;
  for (const double x : without) variance += (x - middle) * (x - middle);
  variance *= static_cast<double>(n - 1) / static_cast<double>(n);
  const double narrower = kNormal95 / student_t95(n - 1);
  const double effective = variance > 0 ? p * (1 - p) / variance * narrower * narrower
                                        : std::numeric_limits<double>::infinity();
  return wilson(p, p * (1 - p) > 0 ? std::min(trials, effective) : trials);
}

std::optional<RateDifference> rate_difference(std::span<const SharePair> pairs, double within) {
  SharePair sum;
  std::vector<SharePair> units;
  for (const SharePair& u : pairs) {
    if (!(u.base.whole > 0) || !(u.other.whole > 0)) continue;
    sum = {{sum.base.part + u.base.part, sum.base.whole + u.base.whole},
           {sum.other.part + u.other.part, sum.other.whole + u.other.whole}};
    units.push_back(u);
  }
  if (units.empty()) return std::nullopt;
  RateDifference d;
  d.units = std::ssize(units);
  d.base = sum.base.part / sum.base.whole;
  d.other = sum.other.part / sum.other.whole;
  if (d.units < 2) return d;
  const auto without = [](const Share& all, const Share& one) {
    return (all.part - one.part) / (all.whole - one.whole);
  };
  const auto n = static_cast<double>(d.units);
  std::vector<double> pseudo;
  for (const SharePair& u : units) {
    const double rest = without(sum.other, u.other) - without(sum.base, u.base);
    pseudo.push_back(n * (d.other - d.base) - (n - 1) * rest);
  }
  const double net = std::abs(d.other - d.base) / std::min(sum.base.whole, sum.other.whole);
  const double error = std::max(*stddev(pseudo) / std::sqrt(n), std::sqrt(net));
  const double middle = mean(pseudo);
  const double half = student_t(d.units - 1, within) * error;
  d.interval = Interval{middle - half, middle + half};
  const double independent =
      d.base * (1 - d.base) / sum.base.whole + d.other * (1 - d.other) / sum.other.whole;
  if (independent > 0) d.design_effect = error * error / independent;
  return d;
}

double trials_to_tell(double base, double less) {
  TF_CHECK(base > 0 && base < 1 && less > 0 && less < 1, "{} less {}", base, less);
  const double z = normal_z(0.90) + normal_z(0.80);  // 95% and 90% on one side
  const double other = std::max(0.0, base - less);
  return z * z * (base * (1 - base) + other * (1 - other)) / (less * less);
}

Distribution summarize(SamplesByPrompt prompts) {
  std::vector<double> sorted;
  for (const std::vector<double>& samples : prompts) {
    sorted.insert(sorted.end(), samples.begin(), samples.end());
  }
  std::ranges::sort(sorted);
  Distribution d;
  d.n = std::ssize(sorted);
  if (sorted.empty()) return d;
  if (const auto estimate = geometric_mean(prompts)) {
    d.geometric_mean = estimate->value;
    if (estimate->interval) {
      d.ci95_low = estimate->interval->low;
      d.ci95_high = estimate->interval->high;
      d.ci95_over = estimate->over;
    }
  }
  d.mean = mean(sorted);
  d.median = quantile(sorted, 0.5);
  d.stddev = stddev(sorted);
  d.min = sorted.front();
  d.max = sorted.back();
  if (d.n >= 10) d.p90 = quantile(sorted, 0.90);
  if (d.n >= 20) d.p95 = quantile(sorted, 0.95);
  if (d.n >= 100) d.p99 = quantile(sorted, 0.99);
  return d;
}

std::optional<double> tokens_per_s(std::span<const Sample> samples) {
  struct Sum {
    double tokens = 0, ms = 0;
  };
  std::map<std::pair<int, int>, Sum> generations;  // by batch and repetition
  for (const Sample& s : samples) {
    if (s.warmup || s.tokens < 1) continue;
    Sum& of = generations[{s.decoded_in(), s.repetition}];
    of.tokens += static_cast<double>(s.tokens);
    of.ms = std::max(of.ms, s.decode_ms);
  }
  ByPrompt rates;
  for (const auto& [at, sum] : generations) rates[at.first].push_back(1000 * sum.tokens / sum.ms);
  const auto mean = geometric_mean(groups_of(std::move(rates)));
  return mean ? std::optional(mean->value) : std::nullopt;
}

std::optional<double> noise_percent(SamplesByPrompt prompts) {
  double sum = 0, freedom = 0;
  for (const std::vector<double>& samples : prompts) {
    const auto deviation = stddev(samples);
    const double m = samples.empty() ? 0 : mean(samples);
    if (!deviation || !(m > 0)) continue;
    const auto weight = static_cast<double>(samples.size() - 1);
    sum += weight * (*deviation / m) * (*deviation / m);
    freedom += weight;
  }
  if (freedom == 0) return std::nullopt;
  return 100.0 * std::sqrt(sum / freedom);
}

}  // namespace triforce
