// A direction holds if measured cases show what their experiment is to show.
#pragma once
#include <span>

#include "triforce/sweep.h"

namespace triforce {

// Fills in values, effect, interval and verdict from the rows whose numbers its sides name. Not
// measured, with the reason: a side without a case, one whose row is not there or whose method has
// not status ok, figures that it does not have, and acceptances that were given (synthetic).
void judge_direction(SweepDirection& direction, std::span<const SweepRow> rows);

}  // namespace triforce
