// Options from TOML files, under the names of the command line: the file of --config, and recipes
// of experiments.
#pragma once
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "options/options.h"
#include "triforce/sweep.h"

namespace triforce {

// Options of `command` from a file of `option = value` lines; a list is joined by commas. Messages
// begin with file and line. Throws Error(kUsage) for unknown options and values of another type,
// Error(kBadInput): InvalidToml, and what reading a file throws.
GivenOptions read_config_file(Command command, const std::string& path);

// A recipe's size says what its experiment is measured with. `paper` has the paper's models and
// sizes. `gpu` has the paper's sizes with random weights and the published acceptances, for times.
// `tiny` has the built-in pair.
inline constexpr std::array<std::string_view, 3> kRecipeSizes = {"paper", "gpu", "tiny"};

// Returns whether a direction or block is for `size`. If it lists no sizes, it is for all.
inline bool is_of(const std::vector<std::string>& sizes, std::string_view size) {
  return sizes.empty() || std::ranges::find(sizes, size) != sizes.end();
}

// A sentence of a recipe about two of its cases: "side is greater (less) than than". Options tell
// them from the others, `method` among them; in place of a value "first", "middle" and "last" are
// those of the values that the option has in the cases that the other options leave.
struct RecipeDirection {
  std::string where;  // begins messages
  std::string text;
  CaseMetric metric = CaseMetric::kAcceptance;
  DirectionRelation relation = DirectionRelation::kGreater;
  GivenOptions side, than;
  double threshold = 0;            // of the effect, see SweepDirection
  std::vector<std::string> sizes;  // whose cases can show it; empty: any
};

// Options of all cases of one size.
struct RecipePart {
  GivenOptions options;
  std::string machine;  // MachineSpec::id of a built-in one; empty: none is named
};

// Cases with options of their own.
struct RecipeBlock {
  std::string where;  // begins messages
  GivenOptions options;
  std::vector<std::string> sizes;  // that have them; empty: all
};

// What an experiment is called and shows, at every size.
struct RecipeText {
  std::string title, source, about;
  std::string published;  // of published results those whose source begins so
  std::vector<std::string> cannot;
  std::vector<CaseMetric> columns;  // of its table; empty: the usual ones
  std::optional<EqualView> equal;   // a further table
};

// An experiment: the cases of one table or figure. data/experiments/README.md ("Write a recipe")
// describes the file.
struct Recipe : RecipeText {
  GivenOptions options;
  std::map<std::string, std::vector<RecipePart>, std::less<>> sizes;  // each at least one
  std::vector<RecipeBlock> blocks;
  std::vector<RecipeDirection> directions;
};
// Throws as read_config_file(), and Error(kBadInput, "InvalidRecipe") for one without a title.
Recipe read_recipe(const std::string& path);

}  // namespace triforce
