// These functions read from the samples of a result what they say of each prompt. Two cases on the
// same prompts can then be compared prompt by prompt, and what is peculiar to a prompt cancels out.
#pragma once
#include <array>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "statistics/statistics.h"
#include "triforce/case_result.h"

namespace triforce {

// Samples that are no warm-ups.
std::vector<const Sample*> timed_samples(const CaseResult& c);

// The key is a unit of a rate: a prompt, or a repetition where there is one prompt.
using SharesByUnit = std::map<int, Share>;
// Returns what a level accepted of what it tested, over several results of one case. A generation
// that was repeated with the same outcome counts once. It is empty if the case has no such level.
SharesByUnit shares_by_unit(std::span<const CaseResult* const> results, std::string_view level,
                            bool one_prompt);
// Pairs the units that both have.
std::vector<SharePair> paired(const SharesByUnit& base, const SharesByUnit& other);

// A positive figure, and the prompts that it was measured together with.
struct Figure {
  double value = 0;
  int decoded_in = 0;
};
// By (prompt, repetition).
using FiguresBySample = std::map<std::pair<int, int>, Figure>;
// Of timed samples that generated something.
FiguresBySample ms_per_token(const CaseResult& c);
// Which domains of energy, in the order of kDomains.
using DomainSet = std::array<bool, kDomains.size()>;
// Those that all timed samples of these cases that generated something have; none without any.
DomainSet common_domains(std::span<const CaseResult* const> cases);
// The energy of these domains, which the sample has, over its tokens, of which there are some, J.
double joules_per_token(const Sample& s, const DomainSet& domains);
// Likewise of timed samples that generated something.
FiguresBySample joules_per_token(const CaseResult& c, const DomainSet& domains);
// ratio_interval() of base / other over the samples that both have, by prompt, or by the batches of
// the side that has fewer of them. Nothing: they have no such sample.
std::optional<Estimate> paired_ratio(const FiguresBySample& base, const FiguresBySample& other);

// What the timed samples of a case say of its energy, of the domains that all of them have; its
// saving is of those that both cases have. `baseline`: the case that it saves from; null: none.
// idle_watts: of each domain, W. nullopt: there is no such domain.
std::optional<CaseEnergy> energy_of(const CaseResult& c, const CaseResult* baseline,
                                    const ByDomain& idle_watts);

}  // namespace triforce
