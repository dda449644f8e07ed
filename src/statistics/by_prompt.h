// What the samples of a result say of each prompt, so that two cases on the same prompts can be
// compared prompt by prompt: what is peculiar to a prompt then cancels out.
#pragma once
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "statistics/statistics.h"

namespace triforce {

// Samples that are no warm-ups.
std::vector<const Sample*> timed_samples(const CaseResult& c);

// By unit of a rate: the prompts, or of a single prompt its repetitions.
using SharesByUnit = std::map<int, Share>;
// What a level accepted of what it tested, over several results of one case. A generation that was
// repeated with the same outcome counts once. Empty: the level is not there.
SharesByUnit shares_by_unit(std::span<const CaseResult* const> results, std::string_view level,
                            bool one_prompt);
// Of the units that both have.
std::vector<SharePair> paired(const SharesByUnit& base, const SharesByUnit& other);

// Positive figures by (prompt, repetition).
using FiguresBySample = std::map<std::pair<int, int>, double>;
// ratio_interval() of base / other over the samples that both have. Nothing: they have none.
std::optional<Estimate> paired_ratio(const FiguresBySample& base, const FiguresBySample& other);

}  // namespace triforce
