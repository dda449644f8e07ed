// Which cases the directions of a recipe are about.
#pragma once
#include <vector>

#include "options/axes.h"
#include "options/config_file.h"

namespace triforce {

// One side of a direction: a method of one of the points it was chosen from.
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

// Of those that hold for cases of `size`. `own`: the recipe's points of that size as it is written,
// which must have exactly one case a side; throws Error(kUsage) where they do not, for an option in
// which they do not differ and for a value that an option refuses. `points`: what is measured,
// where the command line may have left other points.
std::vector<ChosenDirection> choose_directions(const std::vector<RecipeDirection>& directions,
                                               const std::string& size,
                                               const std::vector<AxisPoint>& own,
                                               const std::vector<AxisPoint>& points);

}  // namespace triforce
