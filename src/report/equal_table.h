// What each kind of case of a recipe takes to be as good as the others.
#pragma once
#include "report/tables.h"
#include "triforce/sweep.h"

namespace triforce {

// A row for each method and its options but the axis, a column for each of some round values of the
// metric that were crossed: the place on the axis where the row reaches it. Places are interpolated
// between those measured, linear in their logarithms. No rows: the recipe does not ask for it, or
// fewer than two places were measured.
TextTable equal_table(const SweepResult& sweep, const SweepRecipe& recipe);

}  // namespace triforce
