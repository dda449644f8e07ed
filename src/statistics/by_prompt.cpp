#include "statistics/by_prompt.h"

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

}  // namespace triforce
