// Rank tests tell whether the values of one side tend to be larger than those of another. Ranks
// alone decide, so that neither outliers nor the shape of a distribution matter.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "triforce/acceptance_result.h"

namespace triforce {

// Values of both sides that would be exchangeable if the sides did not differ: of one prompt, with
// equal work.
struct Stratum {
  std::vector<double> base, other;
};
using Strata = std::span<const Stratum>;

// Probabilities of what was seen or more, if every assignment of a stratum's values to its sides
// were as likely as any other.
struct RankTest {
  double p_greater = 1;  // that `other` ranks so high
  double p_less = 1;     // that it ranks so low
  double least = 1;      // the smallest of either that so many values can have
};
// The sum over the strata of the Mann-Whitney statistic (with equal weights; van Elteren 1960),
// ties with midranks. Exact: the distribution given the ranks is counted (Streitberg and Roehmel
// 1986) and convolved over the strata. With a stratum of more than kExactRanks values, or more than
// kExactRanksInAll in all, the normal approximation with corrections for ties and continuity:
// its p is within a tenth of the exact one down to 1e-5, and larger than that below. One value a
// side and stratum gives the exact sign test. A stratum without values on both sides says nothing.
// All values finite.
inline constexpr std::size_t kExactRanks = 100, kExactRanksInAll = 600;
RankTest mann_whitney(Strata strata);

// Holm's (1979) adjusted values of `p`, in its order: below a with probability at most a if none of
// the hypotheses is wrong.
std::vector<double> holm(std::span<const double> p);

// A Shift says how much larger `other` is than `base`, where the sides differ by a shift alone.
struct Shift {
  double shift = 0;                  // the median of all differences of a pair, other - base
  std::optional<Interval> interval;  // nothing where no assignment is as rare as it must be
};
// Hodges and Lehmann's (1963) estimate, and the two-sided interval of those shifts that
// mann_whitney() would not reject: it holds the shift with at least probability `within`, in (0,
// 1), whatever the distribution. By the exact distribution of the ranks up to kExactRanks values,
// beyond by the normal approximation. Finite values, at least one a side.
Shift hodges_lehmann(const Stratum& values, double within);

// A MedianRatio says how much larger `other` is than `base`. Logarithms are compared. Each is taken
// less the median of its stratum, so that strata may differ in level.
struct MedianRatio {
  double ratio = 1;            // median of `other` over that of `base`
  double base = 0, other = 0;  // the medians, at the geometric mean of the strata's levels
  Interval ci95;               // percentiles of a bootstrap
  double noise = 0;            // spread of the logarithms about the median of their side, see below
};
// Positive values, at least one a side in all. The bootstrap draws `resamples` times from the
// residuals of each side, widened by sqrt(n / (n - strata)) for the medians that were taken off;
// the same values always give the same interval. The noise is 1.4826 times the median absolute
// residual of both sides (so that it is the standard deviation of normal values, and a few outliers
// are none of it), with the same factor and n / (n - 0.8) for small n (Croux and Rousseeuw 1992).
MedianRatio median_ratio(Strata strata, int resamples = 10000);

}  // namespace triforce
