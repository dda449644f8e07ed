// This finds the cases that the directions of a recipe are about.
#pragma once
#include <vector>

#include "options/axes.h"
#include "options/config_file.h"

namespace triforce {

// A side of a direction is a method of one of the points it was chosen from.
struct ChosenSide {
  std::optional<std::size_t> point;  // nullopt: none has its options
  std::string method, options;       // as results name it, "budget 128, temp 0.6"
};
struct ChosenDirection {
  std::string text;
  CaseMetric metric = CaseMetric::kAcceptance;
  DirectionRelation relation = DirectionRelation::kGreater;
  ChosenSide side, than;
  double threshold = 0;
  std::string problem;  // why a side has no point, or both are one; empty: nothing
};

// Chooses the cases of the directions that hold for `size`. `own` are the recipe's points of that
// size as it is written; they must have exactly one case a side. `points` are those that are
// measured, which may be others by the command line. Throws Error(kUsage) for another number of
// cases a side, for an option in which points do not differ, and for a value that an option
// refuses.
std::vector<ChosenDirection> choose_directions(const std::vector<RecipeDirection>& directions,
                                               const std::string& size,
                                               const std::vector<AxisPoint>& own,
                                               const std::vector<AxisPoint>& points);

}  // namespace triforce
