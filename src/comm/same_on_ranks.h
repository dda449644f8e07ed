// What all ranks of a run must have in common.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "comm/rank_links.h"

namespace triforce {

// Named facts about a rank: {"--budget", "4096"}.
using RankFacts = std::vector<std::pair<std::string, std::string>>;

// To be called on all ranks at once. Throws Error(kUsage, "RanksDiffer") on all of them if one has
// other facts than rank 0, with the first that differs; and as RankLinks.
void expect_same(RankLinks& links, const RankFacts& facts);

}  // namespace triforce
