// Statistics of timings: order statistics and bootstrap intervals, the same on every machine.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "triforce/report.h"

namespace triforce {

// Fewest samples for a 95% interval of a median: with fewer, not even [min, max] comes near 95%
// (n = 5: 93.75%).
inline constexpr std::int64_t kMinIntervalSamples = 5;
inline constexpr int kBootstrapResamples = 10000;

// The p-quantile of ascending samples by linear interpolation between order statistics at
// (n - 1) p (type 7 of Hyndman and Fan 1996, the default of R and NumPy). Not empty; p in [0, 1].
double quantile(std::span<const double> ascending, double p);
// Middle value, or the mean of the two in the middle. Not empty.
double median(std::span<const double> samples);
double mean(std::span<const double> samples);  // not empty
// Sample standard deviation (n - 1); nothing below two samples.
std::optional<double> stddev(std::span<const double> samples);

struct Interval {
  double low = 0, high = 0;
};

// 95% percentile bootstrap interval of the median. Nothing below kMinIntervalSamples.
std::optional<Interval> bootstrap_median(std::span<const double> samples, std::uint64_t seed);

// median(baseline) / median(other), where entry i of both was measured on the same prompt and
// repetition, with a 95% percentile bootstrap interval that resamples those pairs. Nothing if
// empty; no interval below kMinIntervalSamples. Both spans have the same size.
struct RatioEstimate {
  double value = 0;
  std::optional<Interval> interval;
};
std::optional<RatioEstimate> median_ratio(std::span<const double> baseline,
                                          std::span<const double> other, std::uint64_t seed);

// All of Distribution. p90 needs 10 samples, p95 20, p99 100: below that a percentile is the
// maximum in disguise.
Distribution summarize(std::span<const double> samples, std::uint64_t seed);

// 100 * sqrt(mean over groups of (stddev / mean)^2), weighted by degrees of freedom. A group is
// the samples of one prompt, so that differences between prompts are no noise. Nothing if no group
// has two samples.
std::optional<double> noise_percent(std::span<const std::vector<double>> groups);

}  // namespace triforce
