#include "measure/level_intervals.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "statistics/statistics.h"

namespace triforce {
namespace {

double at(const std::vector<std::int64_t>& counts, std::size_t i) {
  return i < counts.size() ? static_cast<double>(counts[i]) : 0.0;
}

// part(counters) of whole(counters), by entry.
template <class Part, class Whole>
Interval rate_interval(std::span<const LevelCounters> counters, double trials, const Part& part,
                       const Whole& whole) {
  std::vector<Share> shares;
  shares.reserve(counters.size());
  for (const LevelCounters& c : counters) {
    shares.push_back({static_cast<double>(part(c)), static_cast<double>(whole(c))});
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  return proportion_interval(shares, trials).value_or(Interval{kNone, kNone});
}

// Trials whose share of successes would vary as accepted / drafted does over independent rounds. A
// round that takes all or nothing is one trial, any other more.
double trials_of_rounds(const LevelCounters& sum) {
  const auto rounds = static_cast<double>(sum.rounds);
  const double mean = static_cast<double>(sum.accepted) / rounds;
  const double drafted = static_cast<double>(sum.drafted) / rounds;
  double variance = 0;
  for (std::size_t k = 0; k < sum.histogram.size(); ++k) {
    const double off = static_cast<double>(k) - mean;
    variance += at(sum.histogram, k) * off * off / rounds;
  }
  const double p = mean / drafted;
  if (!(variance > 0)) return rounds;
  return std::max(rounds, rounds * p * (1 - p) * drafted * drafted / variance);
}

void add(PositionIntervals& positions, const Interval& b) {
  positions.low.push_back(b.low);
  positions.high.push_back(b.high);
}

}  // namespace

std::optional<LevelIntervals> level_intervals(std::span<const LevelCounters> counters,
                                              IntervalOver over, double distinct) {
  LevelCounters sum;
  std::int64_t entries = 0;
  for (const LevelCounters& c : counters) {
    sum.merge(c);
    entries += c.rounds > 0 ? 1 : 0;
  }
  if (entries < 2 || sum.drafted == 0) return std::nullopt;
  const auto rounds = static_cast<double>(sum.rounds);
  const auto rounds_of = [](const LevelCounters& c) { return c.rounds; };
  const auto accepted_of = [](const LevelCounters& c) { return c.accepted; };
  LevelIntervals out;
  out.over = over;
  out.acceptance_rate =
      rate_interval(counters, distinct * static_cast<double>(sum.accepted + sum.rejected),
                    accepted_of, [](const LevelCounters& c) { return c.accepted + c.rejected; });
  out.accepted_per_drafted = rate_interval(counters, distinct * trials_of_rounds(sum), accepted_of,
                                           [](const LevelCounters& c) { return c.drafted; });
  const double drafted = static_cast<double>(sum.drafted) / rounds;
  const double gamma = static_cast<double>(sum.requested) / rounds;
  out.mean_accepted_length = {1 + out.accepted_per_drafted.low * drafted,
                              1 + out.accepted_per_drafted.high * drafted};
  out.alpha = {alpha_from_tokens_per_round(out.mean_accepted_length.low, gamma),
               alpha_from_tokens_per_round(out.mean_accepted_length.high, gamma)};
  std::size_t positions = sum.tested_at.size();
  while (positions > 0 && sum.tested_at[positions - 1] == 0) --positions;
  for (std::size_t i = 0; i < positions; ++i) {
    const auto accepted = [i](const LevelCounters& c) { return at(c.accepted_at, i); };
    const auto tested = [i](const LevelCounters& c) { return at(c.tested_at, i); };
    add(out.rate_per_position,
        rate_interval(counters, distinct * at(sum.tested_at, i), accepted, tested));
    add(out.unconditional_rate_per_position,
        rate_interval(counters, distinct * rounds, accepted, rounds_of));
  }
  return out;
}

}  // namespace triforce
