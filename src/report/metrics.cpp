#include "triforce/metrics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace triforce {
namespace {

double ratio(std::int64_t a, std::int64_t b) {
  return b == 0 ? std::numeric_limits<double>::quiet_NaN()
                : static_cast<double>(a) / static_cast<double>(b);
}

void add(std::vector<std::int64_t>& into, const std::vector<std::int64_t>& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] += from[i];
}

}  // namespace

void LevelCounters::add_round(const Round& r) {
  const auto n = static_cast<std::size_t>(r.levels), k = static_cast<std::size_t>(r.kept);
  if (tested_at.size() < n) tested_at.resize(n);
  if (accepted_at.size() < n) accepted_at.resize(n);
  if (histogram.size() < n + 1) histogram.resize(n + 1);
  ++rounds;
  requested += r.asked;
  drafted += r.proposed;
  accepted += r.kept;
  rejected += r.rejects ? 1 : 0;
  emitted += r.kept + 1;
  for (std::size_t i = 0; i < k + (r.rejects ? 1 : 0); ++i) ++tested_at[i];
  for (std::size_t i = 0; i < k; ++i) ++accepted_at[i];
  ++histogram[k];
  if (!by_draft_length) by_draft_length.emplace();
  if (by_draft_length->size() <= n) by_draft_length->resize(n + 1);
  std::vector<std::int64_t>& of_length = (*by_draft_length)[n];
  if (of_length.empty()) of_length.resize(n + 1);
  ++of_length[k];
}

void LevelCounters::reserve(std::size_t levels) {
  tested_at.assign(levels, 0);
  accepted_at.assign(levels, 0);
  histogram.assign(levels + 1, 0);
  by_draft_length.emplace(levels + 1);
  for (std::size_t n = 0; n <= levels; ++n) (*by_draft_length)[n].assign(n + 1, 0);
}

void LevelCounters::drop_unseen_lengths() {
  if (!by_draft_length) return;
  const auto unseen = [](const std::vector<std::int64_t>& of_length) {
    return std::ranges::all_of(of_length, [](std::int64_t n) { return n == 0; });
  };
  for (std::vector<std::int64_t>& of_length : *by_draft_length) {
    if (unseen(of_length)) of_length.clear();
  }
  while (!by_draft_length->empty() && by_draft_length->back().empty()) by_draft_length->pop_back();
}

void LevelCounters::merge(const LevelCounters& other) {
  if (name.empty()) name = other.name;
  if (rounds == 0 && !by_draft_length) by_draft_length.emplace();
  if (other.rounds > 0 && !other.by_draft_length) by_draft_length.reset();
  if (by_draft_length && other.by_draft_length) {
    auto& lengths = *by_draft_length;
    if (lengths.size() < other.by_draft_length->size())
      lengths.resize(other.by_draft_length->size());
    for (std::size_t n = 0; n < other.by_draft_length->size(); ++n) {
      add(lengths[n], (*other.by_draft_length)[n]);
    }
  }
  rounds += other.rounds;
  requested += other.requested;
  drafted += other.drafted;
  accepted += other.accepted;
  rejected += other.rejected;
  emitted += other.emitted;
  add(tested_at, other.tested_at);
  add(accepted_at, other.accepted_at);
  add(histogram, other.histogram);
  if (!other.acceptance_vector) return;
  if (!acceptance_vector) acceptance_vector.emplace();
  acceptance_vector->merge(*other.acceptance_vector);
}

namespace {

void add(std::vector<double>& into, std::span<const double> from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] += from[i];
}

RecoveryCounters::Group& group_of(RecoveryCounters& counters, std::int64_t from_tokens) {
  auto& groups = counters.by_age;
  const auto at =
      std::ranges::lower_bound(groups, from_tokens, {}, &RecoveryCounters::Group::from_tokens);
  if (at != groups.end() && at->from_tokens == from_tokens) return *at;
  return *groups.insert(at, {from_tokens, 0, {}});
}

}  // namespace

void RecoveryCounters::add(std::optional<std::int64_t> age, std::span<const double> shares) {
  ++rows;
  triforce::add(by_layer, shares);
  if (!age) return;
  const auto from = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(*age)));
  Group& group = group_of(*this, from);
  ++group.rows;
  triforce::add(group.by_layer, shares);
}

void RecoveryCounters::merge(const RecoveryCounters& other) {
  rows += other.rows;
  triforce::add(by_layer, other.by_layer);
  for (const Group& from : other.by_age) {
    Group& into = group_of(*this, from.from_tokens);
    into.rows += from.rows;
    triforce::add(into.by_layer, from.by_layer);
  }
}

double LevelCounters::acceptance_rate() const { return ratio(accepted, accepted + rejected); }

double LevelCounters::alpha() const {
  return alpha_from_tokens_per_round(1.0 + ratio(accepted, rounds), ratio(requested, rounds));
}

double LevelCounters::accepted_per_drafted() const { return ratio(accepted, drafted); }

double LevelCounters::mean_accepted_length() const { return ratio(emitted, rounds); }

double speedup_bound(double alpha) { return 1 / (1 - alpha); }

double alpha_from_tokens_per_round(double tokens_per_round, double g) {
  if (!std::isfinite(tokens_per_round) || !std::isfinite(g) || g == 0)
    return std::numeric_limits<double>::quiet_NaN();
  const auto expected = [g](double a) {
    return a >= 1.0 ? g + 1.0 : (1.0 - std::pow(a, g + 1.0)) / (1.0 - a);
  };
  if (tokens_per_round >= expected(1.0)) return 1.0;
  double low = 0.0, high = 1.0;  // expected() rises with a
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (expected(middle) < tokens_per_round ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

}  // namespace triforce
