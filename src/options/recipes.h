// These functions find the experiments that there are, and their cases.
#pragma once
#include <string>
#include <vector>

#include "options/directions.h"

namespace triforce {

// A recipe of one size as `sweep` was asked for it.
struct ChosenRecipe : RecipeText {
  std::string name;  // "fig6b", or the file
  std::string size;  // "tiny"; empty: a file's without a size
  // Its combinations, not checked yet; `axes` are the options that differ among them, `method`
  // excepted.
  std::vector<AxisPoint> points;
  // The same combinations at size `paper`, beside which published results stand. It is empty if the
  // recipe has no such size.
  std::vector<AxisPoint> paper_points;
  std::vector<SweepDirection> directions;  // among `points`
};

// A recipe of data/experiments, by the names that `sweep` takes.
struct KnownRecipe {
  std::string name;  // "fig6b"
  std::string title;
  std::vector<std::string> sizes;  // "tiny": its size is swept by "tiny-fig6b"
};
// Returns them in the order of their names. Throws as read_recipe().
std::vector<KnownRecipe> known_recipes();

// "tiny-fig6b" is that size of data/experiments/fig6b.toml, "tiny-all" that size of all that have
// it, "my.toml" or "my.toml:tiny" a file. `given`, of the command line, replaces a recipe's
// options; of an option that its blocks of cases, or a size's sections, have different values of,
// it chooses the cases with one of its values, so that it never multiplies them. Throws
// Error(kUsage) for unknown names and sizes and for such values that no case has, naming what there
// is, and as read_recipe(), expand_axes() and choose_directions().
std::vector<ChosenRecipe> choose_recipes(const std::string& name, const GivenOptions& given,
                                         std::size_t max_points);

}  // namespace triforce
