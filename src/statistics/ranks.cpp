#include "statistics/ranks.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

#include "statistics/statistics.h"

namespace triforce {
namespace {

// Twice the midranks of a stratum's values, those of `base` first.
struct Ranks {
  std::vector<std::int64_t> doubled;
  std::size_t of_base = 0;
  double tied = 0;  // sum of t^3 - t over groups of t equal values

  std::int64_t sum_of_other() const {
    return std::accumulate(doubled.begin() + static_cast<std::ptrdiff_t>(of_base), doubled.end(),
                           std::int64_t{0});
  }
};

Ranks ranks_of(const Stratum& s) {
  std::vector<double> values = s.base;
  values.insert(values.end(), s.other.begin(), s.other.end());
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  Ranks ranks;
  ranks.of_base = s.base.size();
  ranks.doubled.resize(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (std::size_t k = i; k < end; ++k) {
      ranks.doubled[order[k]] = static_cast<std::int64_t>(i + 1 + end);
    }
    const auto t = static_cast<double>(end - i);
    ranks.tied += t * t * t - t;
    i = end;
  }
  return ranks;
}

// Probabilities of sums, from `first` on in steps of one.
struct SumDistribution {
  std::int64_t first = 0;
  std::vector<double> p;
};

// Returns the distribution of the sum of `n_other` of the ranks, where each choice is as likely as
// any other. One rank after the other is taken or left.
SumDistribution distribution_of(const Ranks& ranks, std::size_t n_other) {
  const auto total = static_cast<std::size_t>(
      std::accumulate(ranks.doubled.begin(), ranks.doubled.end(), std::int64_t{0}));
  // ways[k][s]: choices of k ranks whose sum is s, as a share of all choices of k.
  std::vector<std::vector<double>> ways(n_other + 1, std::vector<double>(total + 1, 0.0));
  ways[0][0] = 1;
  std::size_t seen = 0, reached = 0;
  for (const std::int64_t rank : ranks.doubled) {
    ++seen;
    const auto r = static_cast<std::size_t>(rank);
    reached += r;
    for (std::size_t k = std::min(seen, n_other); k > 0; --k) {
      const double taken = static_cast<double>(k) / static_cast<double>(seen);
      for (std::size_t s = reached + 1; s-- > 0;) {
        const double with = s >= r ? ways[k - 1][s - r] : 0.0;
        ways[k][s] = (1 - taken) * ways[k][s] + taken * with;
      }
    }
  }
  std::vector<double>& p = ways[n_other];
  const auto is_some = [](double x) { return x > 0; };
  const auto begin = std::ranges::find_if(p, is_some);
  const auto end = std::find_if(p.rbegin(), p.rend(), is_some).base();
  return {begin - p.begin(), std::vector<double>(begin, end)};
}

// The largest number of the ordered differences of all pairs, without ties, that may be left out at
// each end so that the next one is beyond a shift of 0 with probability `tail` at most.
std::size_t differences_in_tail(std::size_t of_base, std::size_t of_other, double tail) {
  const std::size_t n = of_base + of_other;
  if (n > kExactRanks) {
    const auto a = static_cast<double>(of_base), b = static_cast<double>(of_other);
    const double z = normal_z(1 - 2 * tail);
    return static_cast<std::size_t>(
        std::max(0.0, std::floor(0.5 * a * b - z * std::sqrt(a * b * (a + b + 1) / 12))));
  }
  Ranks ranks;
  ranks.of_base = of_base;
  for (std::size_t i = 1; i <= n; ++i) ranks.doubled.push_back(2 * static_cast<std::int64_t>(i));
  const SumDistribution sums = distribution_of(ranks, of_other);  // of twice the ranks: even
  std::size_t count = 0;
  double p = 0;
  for (std::size_t i = 0; i < sums.p.size(); i += 2, ++count) {
    p += sums.p[i];
    if (p > tail) break;
  }
  return count;
}

SumDistribution convolved(const SumDistribution& a, const SumDistribution& b) {
  SumDistribution sum{a.first + b.first, std::vector<double>(a.p.size() + b.p.size() - 1, 0.0)};
  for (std::size_t i = 0; i < a.p.size(); ++i) {
    if (a.p[i] == 0) continue;
    for (std::size_t j = 0; j < b.p.size(); ++j) sum.p[i + j] += a.p[i] * b.p[j];
  }
  return sum;
}

double log_choose(double n, double k) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

double median_in_place(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return 0.5 * (*middle + *std::max_element(values.begin(), middle));
}

// Logarithms less the median of their stratum.
struct Aligned {
  std::vector<double> base, other;
  std::size_t strata = 0;
  double level = 0;  // mean of the medians, by number of values
};

Aligned align(Strata strata) {
  Aligned aligned;
  for (const Stratum& s : strata) {
    if (s.base.empty() || s.other.empty()) continue;
    ++aligned.strata;
    std::vector<double> all;
    for (const std::vector<double>* side : {&s.base, &s.other}) {
      for (const double x : *side) {
        TF_CHECK(x > 0 && std::isfinite(x), "value {}", x);
        all.push_back(std::log(x));
      }
    }
    const double middle = median(all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      (i < s.base.size() ? aligned.base : aligned.other).push_back(all[i] - middle);
    }
    aligned.level += middle * static_cast<double>(all.size());
  }
  const auto n = static_cast<double>(aligned.base.size() + aligned.other.size());
  if (n > 0) aligned.level /= n;
  return aligned;
}

// The median of `side`, which is left with its residuals.
double take_median(std::vector<double>& side) {
  const double middle = median(side);
  for (double& x : side) x -= middle;
  return middle;
}

double noise_of(const Aligned& residuals, double widening) {
  std::vector<double> sizes;
  for (const auto* side : {&residuals.base, &residuals.other}) {
    for (const double x : *side) sizes.push_back(std::abs(x));
  }
  const auto n = static_cast<double>(sizes.size());
  constexpr double kNormalOverMad = 1.4826;
  return kNormalOverMad * median_in_place(sizes) * widening * n / (n - 0.8);
}

}  // namespace

RankTest mann_whitney(Strata strata) {
  std::size_t largest = 0, all = 0;
  for (const Stratum& s : strata) {
    if (s.base.empty() || s.other.empty()) continue;
    largest = std::max(largest, s.base.size() + s.other.size());
    all += s.base.size() + s.other.size();
  }
  RankTest test;
  if (all == 0) return test;
  const bool exact = largest <= kExactRanks && all <= kExactRanksInAll;
  SumDistribution sums{0, {1.0}};
  std::int64_t seen = 0;
  double mean = 0, variance = 0, log_least = 0;
  for (const Stratum& s : strata) {
    if (s.base.empty() || s.other.empty()) continue;
    const Ranks ranks = ranks_of(s);
    seen += ranks.sum_of_other();
    const auto a = static_cast<double>(s.base.size()), b = static_cast<double>(s.other.size());
    const double n = a + b;
    log_least -= log_choose(n, b);
    mean += b * (n + 1);  // of twice the ranks
    variance += a * b / 3 * (n + 1 - ranks.tied / (n * (n - 1)));
    if (exact) sums = convolved(sums, distribution_of(ranks, s.other.size()));
  }
  test.least = std::exp(log_least);
  if (!exact) {
    const auto tail = [&](double distance) {  // a continuity correction of half a rank
      if (!(variance > 0)) return 1.0;
      return 0.5 * std::erfc((distance - 1) / std::sqrt(2 * variance));
    };
    test.p_greater = std::min(1.0, tail(static_cast<double>(seen) - mean));
    test.p_less = std::min(1.0, tail(mean - static_cast<double>(seen)));
    return test;
  }
  const auto at = sums.p.begin() + (seen - sums.first);
  // From the far end of a tail inwards: the small ones first.
  test.p_greater =
      std::min(1.0, std::accumulate(sums.p.rbegin(), std::make_reverse_iterator(at), 0.0));
  test.p_less = std::min(1.0, std::accumulate(sums.p.begin(), at + 1, 0.0));
  return test;
}

Shift hodges_lehmann(const Stratum& values, double within) {
  const std::size_t of_base = values.base.size(), of_other = values.other.size();
  TF_CHECK(of_base > 0 && of_other > 0 && within > 0 && within < 1, "{} and {} values", of_base,
           of_other);
  std::vector<double> differences;
  differences.reserve(of_base * of_other);
  for (const double now : values.other) {
    for (const double before : values.base) differences.push_back(now - before);
  }
  std::ranges::sort(differences);
  Shift out;
  out.shift = median(differences);
  const std::size_t below = differences_in_tail(of_base, of_other, 0.5 * (1 - within));
  if (below > 0) {
    out.interval = Interval{differences[below - 1], differences[differences.size() - below]};
  }
  return out;
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return p[a] < p[b]; });
  std::vector<double> adjusted(p.size());
  double largest = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    largest = std::max(largest, std::min(1.0, static_cast<double>(p.size() - i) * p[order[i]]));
    adjusted[order[i]] = largest;
  }
  return adjusted;
}

MedianRatio median_ratio(Strata strata, int resamples) {
  Aligned values = align(strata);
  TF_CHECK(!values.base.empty() && !values.other.empty() && resamples > 0, "no values");
  const double base_median = take_median(values.base), other_median = take_median(values.other);
  const double shift = other_median - base_median;
  const auto n = static_cast<double>(values.base.size() + values.other.size());
  const double widening = std::sqrt(n / std::max(1.0, n - static_cast<double>(values.strata)));
  MedianRatio out;
  out.ratio = std::exp(shift);
  out.base = std::exp(values.level + base_median);
  out.other = std::exp(values.level + other_median);
  out.noise = noise_of(values, widening);
  std::mt19937_64 engine(20240418);  // any: the interval is to be the same each time
  std::vector<double> drawn, shifts;
  const auto redrawn_median = [&](const std::vector<double>& side) {
    drawn.clear();
    for (std::size_t i = 0; i < side.size(); ++i) drawn.push_back(side[engine() % side.size()]);
    return median_in_place(drawn);
  };
  shifts.reserve(static_cast<std::size_t>(resamples));
  for (int i = 0; i < resamples; ++i) {
    const double base = redrawn_median(values.base);
    shifts.push_back(shift + widening * (redrawn_median(values.other) - base));
  }
  std::ranges::sort(shifts);
  out.ci95 = {std::exp(quantile(shifts, 0.025)), std::exp(quantile(shifts, 0.975))};
  return out;
}

}  // namespace triforce
