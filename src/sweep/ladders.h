// Cases that differ in the context's length are a ladder: from where to where does a method pay?
#pragma once
#include <span>
#include <vector>

#include "triforce/sweep.h"

namespace triforce {

// The ladders of cases that ended, in the order of their first ones. Cases of several recipes, or
// with other options, are of several ladders.
std::vector<SweepLadder> ladders_of(std::span<const SweepRow> rows);

}  // namespace triforce
