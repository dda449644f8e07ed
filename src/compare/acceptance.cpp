#include <algorithm>
#include <cmath>

#include "compare/metrics.h"
#include "statistics/by_prompt.h"

namespace triforce {
namespace {

SharesByUnit shares_of(const std::vector<Measured>& side, std::string_view level, bool one_prompt) {
  std::vector<const CaseResult*> results;
  results.reserve(side.size());
  for (const Measured& m : side) results.push_back(m.result);
  return shares_by_unit(results, level, one_prompt);
}

std::int64_t tested(const SharesByUnit& shares) {
  double sum = 0;
  for (const auto& [unit, share] : shares) sum += share.whole;
  return static_cast<std::int64_t>(sum);
}

bool equal(const SharesByUnit& a, const SharesByUnit& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.part == y.second.part && x.second.whole == y.second.whole;
  });
}

std::string points(double rate) { return fmt::format("{:.4g}", rate); }

// Fills in verdict and reason from the difference.
void judge(MetricComparison& m, const RateDifference& d, double threshold, const char* units) {
  if (!d.interval) {
    return m.decide(Verdict::kAmbiguous, Outcome::kInconclusive,
                    "one prompt without repetitions that differ has no interval (--prompts)");
  }
  constexpr double kSure = 1e-6;  // a rate of 1 may still be less than sure
  const double p = std::clamp(d.base, kSure, 1 - kSure);
  m.n_needed = static_cast<std::int64_t>(
      std::ceil(trials_to_tell(p, threshold) * d.design_effect.value_or(1)));
  if (d.interval->high < -threshold) {
    m.decide(Verdict::kLower, Outcome::kRegressed,
             fmt::format("lower by more than {}", points(threshold)));
  } else if (d.interval->low > -threshold) {
    m.verdict = d.interval->low > threshold ? Verdict::kHigher : Verdict::kSame;
  } else {
    const std::int64_t n = std::min(m.n_base, m.n_other);
    const std::string of = fmt::format("{} tokens of {} {} tested", n, d.units, units);
    m.decide(Verdict::kAmbiguous, Outcome::kInconclusive,
             n < *m.n_needed
                 ? fmt::format("{}, telling a difference of {} needs about {}", of,
                               points(threshold), *m.n_needed)
                 : fmt::format("{}, but the difference is too near {}", of, points(threshold)));
  }
}

}  // namespace

std::vector<MetricComparison> compare_acceptance(const MatchedCase& c, double threshold) {
  std::vector<MetricComparison> rows;
  const CaseResult& first = *c.base.front().result;
  const bool one_prompt = first.data.n_prompts == 1;
  for (const std::string_view level : kLevelNames) {
    const SharesByUnit before = shares_of(c.base, level, one_prompt),
                       now = shares_of(c.other, level, one_prompt);
    if (before.empty() && now.empty()) continue;
    MetricComparison& m = rows.emplace_back();
    m.metric = fmt::format("acceptance.{}", level);
    m.n_base = tested(before);
    m.n_other = tested(now);
    // Either end of the interval alone holds with 95%: only a fall is worse.
    const std::optional<RateDifference> d = rate_difference(paired(before, now), 0.90);
    if (!d) {
      m.decide(Verdict::kMissing, Outcome::kInconclusive, "no tokens were tested on both sides");
      continue;
    }
    m.base = d->base;
    m.other = d->other;
    m.change = d->other - d->base;
    m.interval = d->interval;
    m.design_effect = d->design_effect;
    if (equal(before, now)) {
      m.reason = "counters are equal";
    } else {
      judge(m, *d, threshold, one_prompt ? "repetitions of the only prompt" : "prompts");
    }
  }
  return rows;
}

}  // namespace triforce
