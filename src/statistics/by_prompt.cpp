#include "statistics/by_prompt.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <tuple>

namespace triforce {

std::vector<const Sample*> timed_samples(const CaseResult& c) {
  std::vector<const Sample*> timed;
  for (const Sample& s : c.timing.samples) {
    if (!s.warmup) timed.push_back(&s);
  }
  return timed;
}

SharesByUnit shares_by_unit(std::span<const CaseResult* const> results, std::string_view level,
                            bool one_prompt) {
  SharesByUnit shares;
  std::set<std::tuple<int, std::string, std::int64_t, std::int64_t>> seen;
  for (const CaseResult* result : results) {
    for (const Sample* s : timed_samples(*result)) {
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

std::vector<SharePair> paired(const SharesByUnit& base, const SharesByUnit& other) {
  std::vector<SharePair> pairs;
  for (const auto& [unit, share] : base) {
    if (const auto it = other.find(unit); it != other.end()) pairs.push_back({share, it->second});
  }
  return pairs;
}

FiguresBySample ms_per_token(const CaseResult& c) {
  FiguresBySample figures;
  for (const Sample* s : timed_samples(c)) {
    if (s->tokens > 0) figures[{s->prompt, s->repetition}] = {s->ms_per_token(), s->decoded_in()};
  }
  return figures;
}

DomainSet common_domains(std::span<const CaseResult* const> cases) {
  DomainSet common{};
  bool any = false;
  for (const CaseResult* c : cases) {
    for (const Sample* s : timed_samples(*c)) {
      if (s->tokens < 1) continue;
      const ByDomain energy = s->energy.value_or(ByDomain{});
      for (std::size_t i = 0; i < common.size(); ++i) {
        common[i] = (common[i] || !any) && (energy.*kDomains[i]).has_value();
      }
      any = true;
    }
  }
  return common;
}

double joules_per_token(const Sample& s, const DomainSet& domains) {
  double joules = 0;
  for (std::size_t i = 0; i < domains.size(); ++i) {
    if (domains[i]) joules += (*s.energy.*kDomains[i]).value();
  }
  return joules / static_cast<double>(s.tokens);
}

FiguresBySample joules_per_token(const CaseResult& c, const DomainSet& domains) {
  FiguresBySample figures;
  if (std::ranges::none_of(domains, std::identity())) return figures;
  for (const Sample* s : timed_samples(c)) {
    if (s->tokens < 1) continue;
    figures[{s->prompt, s->repetition}] = {joules_per_token(*s, domains), s->decoded_in()};
  }
  return figures;
}

std::optional<Estimate> paired_ratio(const FiguresBySample& base, const FiguresBySample& other) {
  std::vector<std::pair<Figure, Figure>> pairs;
  std::set<int> of_base, of_other;
  for (const auto& [at, figure] : base) {
    const auto it = other.find(at);
    if (it == other.end()) continue;
    pairs.emplace_back(figure, it->second);
    of_base.insert(figure.decoded_in);
    of_other.insert(it->second.decoded_in);
  }
  ByPrompt bases, others;
  for (const auto& [a, b] : pairs) {
    const int group = of_base.size() <= of_other.size() ? a.decoded_in : b.decoded_in;
    bases[group].push_back(a.value);
    others[group].push_back(b.value);
  }
  return ratio_interval(groups_of(std::move(bases)), groups_of(std::move(others)));
}

namespace {

// All timed generations of a case. Prompts that were decoded together took their time once.
struct EnergySums {
  ByDomain joules = {0, 0, 0};
  double tokens = 0, seconds = 0;
};
EnergySums energy_sums(const CaseResult& c) {
  EnergySums sums;
  std::map<std::pair<int, int>, double> ms;  // by what was decoded together, and repetition
  for (const Sample* s : timed_samples(c)) {
    if (s->tokens < 1) continue;
    sums.joules = sums.joules + s->energy.value_or(ByDomain{});
    sums.tokens += static_cast<double>(s->tokens);
    double& longest = ms[{s->decoded_in(), s->repetition}];
    longest = std::max(longest, s->decode_ms);
  }
  for (const auto& [at, longest] : ms) sums.seconds += longest * 1e-3;
  return sums;
}

}  // namespace

std::optional<CaseEnergy> energy_of(const CaseResult& c, const CaseResult* baseline,
                                    const ByDomain& idle_watts) {
  const EnergySums sums = energy_sums(c);
  if (sums.tokens == 0 || !sums.joules.total()) return std::nullopt;
  CaseEnergy e;
  ByPrompt figures;
  const CaseResult* const alone[] = {&c};
  for (const auto& [at, figure] : joules_per_token(c, common_domains(alone))) {
    figures[figure.decoded_in].push_back(figure.value);
  }
  e.joules_per_token = summarize(groups_of(std::move(figures)));
  e.per_token = 1 / sums.tokens * sums.joules;
  e.above_idle = 1 / sums.tokens * (sums.joules - sums.seconds * idle_watts);
  if (sums.seconds > 0) e.watts = *sums.joules.total() / sums.seconds;
  if (baseline == nullptr || baseline == &c) return e;
  const CaseResult* const both[] = {&c, baseline};
  const DomainSet common = common_domains(both);
  const auto saving =
      paired_ratio(joules_per_token(*baseline, common), joules_per_token(c, common));
  if (!saving) return e;
  e.saving = saving->value;
  if (saving->interval) {
    e.saving_ci95_low = saving->interval->low;
    e.saving_ci95_high = saving->interval->high;
  }
  return e;
}

}  // namespace triforce
