// This finds the cases that the directions of a recipe are about.
#pragma once
#include <vector>

#include "options/axes.h"
#include "options/config_file.h"

namespace triforce {

// Chooses the cases of the directions that hold for `size`. `own` are the recipe's points of that
// size as it is written; they must have exactly one case a side. `points` are those that are
// measured, which may be others by the command line; the number of a side is that of one of them,
// from 1. A reason says why a side has none, or that both sides are one. Throws Error(kUsage) for
// another number of cases a side, for an option in which points do not differ, and for a value that
// an option refuses.
std::vector<SweepDirection> choose_directions(const std::vector<RecipeDirection>& directions,
                                              const std::string& size,
                                              const std::vector<AxisPoint>& own,
                                              const std::vector<AxisPoint>& points);

}  // namespace triforce
