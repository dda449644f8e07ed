#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compare/metrics.h"
#include "statistics/statistics.h"

namespace triforce {
namespace {

// What a level counted, by unit: prompts, or of a single prompt its repetitions. A generation that
// was repeated with the same outcome counts once.
using ByUnit = std::map<int, Share>;

ByUnit shares_of(const std::vector<Measured>& side, std::string_view level, bool one_prompt) {
  ByUnit shares;
  std::set<std::tuple<int, std::string, std::int64_t, std::int64_t>> seen;
  for (const Measured& m : side) {
    for (const Sample* s : timed_samples(*m.result)) {
      for (const LevelCounters& l : s->levels) {
        if (l.name != level) continue;
        if (!seen.emplace(s->prompt, s->tokens_sha256, l.accepted, l.rejected).second) continue;
        Share& share = shares[one_prompt ? s->repetition : s->prompt];
        share.part += static_cast<double>(l.accepted);
        share.whole += static_cast<double>(l.accepted + l.rejected);
      }
    }
  }
  return shares;
}

std::int64_t tested(const ByUnit& shares) {
  double sum = 0;
  for (const auto& [unit, share] : shares) sum += share.whole;
  return static_cast<std::int64_t>(sum);
}

bool equal(const ByUnit& a, const ByUnit& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.part == y.second.part && x.second.whole == y.second.whole;
  });
}

std::string points(double rate) { return fmt::format("{:.4g}", rate); }

// Fills in verdict and reason from the difference.
void judge(MetricComparison& m, const RateDifference& d, double threshold, const char* units) {
  if (!d.interval) {
    m.verdict = Verdict::kAmbiguous;
    m.outcome = Outcome::kInconclusive;
    m.reason = "one prompt without repetitions that differ has no interval (--prompts)";
    return;
  }
  constexpr double kSure = 1e-6;  // a rate of 1 may still be less than sure
  const double p = std::clamp(d.base, kSure, 1 - kSure);
  m.n_needed = static_cast<std::int64_t>(
      std::ceil(trials_to_tell(p, threshold) * d.design_effect.value_or(1)));
  if (d.interval->high < -threshold) {
    m.verdict = Verdict::kLower;
    m.outcome = Outcome::kRegressed;
    m.reason = fmt::format("lower by more than {}", points(threshold));
  } else if (d.interval->low > -threshold) {
    m.verdict = d.interval->low > threshold ? Verdict::kHigher : Verdict::kSame;
  } else {
    m.verdict = Verdict::kAmbiguous;
    m.outcome = Outcome::kInconclusive;
    const std::int64_t n = std::min(m.n_base, m.n_other);
    const std::string of = fmt::format("{} tokens of {} {} tested", n, d.units, units);
    m.reason = n < *m.n_needed
                   ? fmt::format("{}, telling a difference of {} needs about {}", of,
                                 points(threshold), *m.n_needed)
                   : fmt::format("{}, but the difference is too near {}", of, points(threshold));
  }
}

}  // namespace

std::vector<MetricComparison> compare_acceptance(const MatchedCase& c, double threshold) {
  std::vector<MetricComparison> rows;
  const CaseResult& first = *c.base.front().result;
  const bool one_prompt = first.data.n_prompts == 1;
  for (const std::string_view level : kLevelNames) {
    const ByUnit before = shares_of(c.base, level, one_prompt),
                 now = shares_of(c.other, level, one_prompt);
    if (before.empty() && now.empty()) continue;
    MetricComparison& m = rows.emplace_back();
    m.metric = fmt::format("acceptance.{}", level);
    m.n_base = tested(before);
    m.n_other = tested(now);
    std::vector<SharePair> pairs;
    for (const auto& [unit, share] : before) {
      if (const auto it = now.find(unit); it != now.end()) pairs.push_back({share, it->second});
    }
    const std::optional<RateDifference> d = rate_difference(pairs);
    if (!d) {
      m.verdict = Verdict::kMissing;
      m.outcome = Outcome::kInconclusive;
      m.reason = "no tokens were tested on both sides";
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
