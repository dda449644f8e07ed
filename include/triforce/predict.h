// Time per token predicted from the times of single passes and per-token acceptances, and the
// gammas that minimise it (arXiv 2404.11912, section 4.2 for two levels).
#pragma once
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "triforce/method.h"

namespace triforce {

// Milliseconds of a pass by its rows, linear between the numbers of rows that were measured and
// constant beyond the last.
struct StepCurve {
  std::vector<std::pair<int, double>> points;  // (rows, ms), rising rows; empty: not measured
  double at(int rows) const;
};
using StepCurves = PerPass<StepCurve>;

// Tokens that a round yields on average in which g are proposed and each is accepted with
// probability a: 1 + a + ... + a^g.
double tokens_per_round(double a, int g);

// With T_i(n) the time of the i-th pass of the chain over n rows, a_l the acceptance of level l and
// g_l what it asks per verification, a level yields E_l = tokens_per_round(a_l, g_l) tokens:
//
//   cost_0(n) = n T_0(1)                          n tokens of the proposer
//   round_l   = cost_l(g_l) + T_(l+1)(g_l + 1)    one verification
//   cost_(l+1)(n) = n / E_l round_l               n tokens of that level
//
// and a token takes round / E of the outermost level; without levels T_0(1). alphas: one per level,
// innermost first. nullopt: a pass that is needed was not measured, or an alpha is not finite.
std::optional<double> predicted_ms_per_token(const MethodSpec& method, const StepCurves& steps,
                                             std::span<const double> alphas, const Gammas& gammas);

// The gammas of least predicted time: those that `chosen` names are searched in [1, max], the
// others stay as given. nullopt as above.
struct GammaChoice {
  bool gamma = false, inner_gamma = false;
};
std::optional<Gammas> choose_gammas(const MethodSpec& method, const StepCurves& steps,
                                    std::span<const double> alphas, const Gammas& max,
                                    const Gammas& given, const GammaChoice& chosen);

}  // namespace triforce
