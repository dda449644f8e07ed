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

std::optional<Estimate> paired_ratio(const FiguresBySample& base, const FiguresBySample& other) {
  std::map<int, std::pair<std::vector<double>, std::vector<double>>> by_prompt;
  for (const auto& [at, figure] : base) {
    const auto it = other.find(at);
    if (it == other.end()) continue;
    by_prompt[at.first].first.push_back(figure);
    by_prompt[at.first].second.push_back(it->second);
  }
  std::vector<std::vector<double>> bases, others;
  for (auto& [prompt, pairs] : by_prompt) {
    bases.push_back(std::move(pairs.first));
    others.push_back(std::move(pairs.second));
  }
  return ratio_interval(bases, others);
}

}  // namespace triforce
