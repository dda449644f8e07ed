// Intervals of a level's rates from what it counted on each prompt.
#pragma once
#include <optional>
#include <span>

#include "triforce/report.h"

namespace triforce {

// `counters`: of a level, one entry a prompt (or, of a single prompt, one a repetition; `over` says
// which). `distinct`: the share of what they counted that is no repetition of the same generation,
// in (0, 1]. Each rate's interval is proportion_interval()'s; that of mean_accepted_length is of
// accepted / drafted, the trials those that would vary as the rounds did if no round depended on
// another; that of alpha follows from it. Nothing below two entries with rounds; a position that
// fewer than two entries tested has NaN.
std::optional<LevelIntervals> level_intervals(std::span<const LevelCounters> counters,
                                              IntervalOver over, double distinct);

}  // namespace triforce
