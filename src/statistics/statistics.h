// Statistics of timings and rates, the same on every machine. What is random are the prompts:
// repetitions of a prompt resemble each other, so that intervals count prompts, not samples. All
// intervals are two-sided, of 95% where nothing else is said.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "statistics/distributions.h"
#include "triforce/timing_result.h"

namespace triforce {

// The p-quantile of ascending samples by linear interpolation between order statistics at
// (n - 1) p (type 7 of Hyndman and Fan 1996, the default of R and NumPy). Not empty; p in [0, 1].
double quantile(std::span<const double> ascending, double p);
// Middle value, or the mean of the two in the middle. Not empty.
double median(std::span<const double> samples);
double mean(std::span<const double> samples);  // not empty
// Sample standard deviation (n - 1); nothing below two samples.
std::optional<double> stddev(std::span<const double> samples);

// Student's t on the mean of at least two values, however many: one rule without a jump and without
// draws. A bootstrap over the prompts has little to add where there are enough for one
// (tests/measure/coverage_test.cpp).
Interval mean_interval(std::span<const double> values);

struct Estimate {
  double value = 0;
  std::optional<Interval> interval;
  IntervalOver over = IntervalOver::kPrompts;
};

// Positive samples, those of each prompt together; a prompt without any is left out.
using SamplesByPrompt = std::span<const std::vector<double>>;
// The samples of each prompt by its number, and in its order.
using ByPrompt = std::map<int, std::vector<double>>;
std::vector<std::vector<double>> groups_of(ByPrompt&& samples);

// exp of the mean over prompts of each prompt's mean logarithm: every prompt counts alike, however
// many samples it has. The interval is that of Student's t on those means; of one prompt alone it
// is that of its samples' logarithms, which says nothing of other prompts. No interval of one
// sample. Nothing without samples, or if one is not positive and finite.
std::optional<Estimate> geometric_mean(SamplesByPrompt prompts);

// geometric_mean() of baseline / other, entry by entry: the ratio of their geometric means, whose
// interval leaves out what a prompt or a moment changes in both. Both have equal shapes.
std::optional<Estimate> ratio_interval(SamplesByPrompt baseline, SamplesByPrompt other);

// One prompt adds `part` of `whole` to a rate.
struct Share {
  double part = 0, whole = 0;
};
// Interval of sum(part) / sum(whole), a rate in [0, 1]: Wilson's (1927) for the number of
// independent trials that has the variance which the jackknife over the prompts finds, with
// Student's t on one degree of freedom less than prompts in place of the normal quantile, and never
// more than `trials` (Korn and Graubard 1998, who truncate Clopper and Pearson's so): prompts that
// happen to agree are no reason for an interval narrower than that of independent trials. Where all
// or nothing is part, prompts show no spread, and trials count as independent. Nothing below two
// prompts with a whole.
std::optional<Interval> proportion_interval(std::span<const Share> prompts, double trials);

// A rate before and after a change, of units that both have: prompts.
struct SharePair {
  Share base, other;
};
struct RateDifference {
  double base = 0, other = 0;  // the rates: sums of part over sums of whole
  // The two-sided interval of other - base is Student's t on the pseudo-values of the jackknife
  // over the units (Tukey 1958; Miller 1974). Its standard error is taken for no smaller than that
  // of a net difference of so many trials (McNemar 1947). Units that happen to agree are no reason
  // for a narrower interval.
  std::optional<Interval> interval;  // nothing below two units
  // The variance of the difference over that of independent trials: above 1 where
  // trials of a unit resemble each other, below 1 where both sides of a unit do. Nothing below two
  // units, or where trials cannot vary.
  std::optional<double> design_effect;
  std::int64_t units = 0;
};
// The interval holds the difference with probability `within`, in (0, 1): with 0.90 each end alone
// holds with 95%. Units without a whole on both sides are left out; nothing if none is left.
std::optional<RateDifference> rate_difference(std::span<const SharePair> pairs, double within);
// Independent trials a side after which a rate of `base` on both sides is told from one that is
// `less` smaller: two samples, 5% wrong alarms on one side, 90% power. base and less in (0, 1).
double trials_to_tell(double base, double less);

// Fills in all of Distribution, over the samples of all prompts. p90 needs 10 samples, p95 20, p99
// 100: below that a percentile is the maximum in disguise.
Distribution summarize(SamplesByPrompt prompts);

// Tokens of all prompts that were decoded together over the time until the last of them ended, the
// geometric mean over such batches as above. Of timed samples that generated something; nothing if
// there is none.
std::optional<double> tokens_per_s(std::span<const Sample> samples);

// 100 * sqrt(mean over prompts of (stddev / mean)^2), weighted by degrees of freedom: differences
// between prompts are no noise. Nothing if no prompt has two samples.
std::optional<double> noise_percent(SamplesByPrompt prompts);

}  // namespace triforce
