// Time per token predicted from the times of single passes and from acceptances, and the gammas
// that minimise it (arXiv 2404.11912, section 4.2 for two levels). The loop is that of speculate.h:
// an inner level is asked for g tokens and may hand over more, since its last round is kept whole.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "triforce/method.h"

namespace triforce {

// Milliseconds of a pass by its rows, linear between the numbers of rows that were measured and
// constant beyond the last; more than max_exact_rows() are several passes.
struct StepCurve {
  std::vector<std::pair<int, double>> points;  // (rows, ms), rising rows; empty: not measured
  double at(double rows) const;  // `rows` may be a mean of passes; throws if not measured
};
using StepCurves = PerPass<StepCurve>;

// How probable it is that a level accepts proposal i, given that it accepted all before it:
// rates[i], beyond the last that of the last. One rate is the paper's per-token alpha.
struct AcceptanceCurve {
  std::vector<double> rates;  // in [0, 1], at least one
  double offered = 1;         // share of rounds in which what a lookup proposes is anything at all
  double at(int i) const;
};
using AcceptanceCurves = std::vector<AcceptanceCurve>;  // one per level, innermost first
AcceptanceCurves constant_acceptance(std::span<const double> alphas);

// What the loop takes besides the passes of the models.
struct LoopCosts {
  double per_pass_ms = 0;   // between passes, on the host
  double per_row_ms = 0;    // each row of probabilities: making it, drawing from it or verifying it
  double per_round_ms = 0;  // each outermost verification: what caches take over
  double per_token_ms = 0;  // each generated token: selections that follow their number
  int lanes = 1;            // that go on together: rows of a pass are of each
};

// A round of the outermost level on average.
struct RoundForecast {
  double ms = 0, tokens = 0;
  double ms_per_token() const { return ms / tokens; }
};

// With T_i(n) the time of the i-th pass of the chain over n rows, a level that is handed p tokens
// costs what these did and T_(l+1)(p + 1), and yields 1 + a_1 + a_1 a_2 + ... of them. It is run
// until it has yielded what the level above asked for, so that it hands over a random number, whose
// distribution follows from that of its yields by renewal; the expected number of its rounds is
// exact (Wald). Lanes go on until the last of them has enough, in passes of as many rows as the
// longest draft needs; that all of them take part in every round is exact for two levels of models.
// A level that asks for 0 tokens draws from its own pass, and nothing below it runs. nullopt: a
// pass that is needed was not measured, or a rate is not finite. acceptance: one a level.
std::optional<RoundForecast> predicted_round(const MethodSpec& method, const StepCurves& steps,
                                             std::span<const AcceptanceCurve> acceptance,
                                             const Gammas& gammas, const LoopCosts& costs = {});
// Its time per token. alphas: one per level, innermost first.
std::optional<double> predicted_ms_per_token(const MethodSpec& method, const StepCurves& steps,
                                             std::span<const double> alphas, const Gammas& gammas,
                                             const LoopCosts& costs = {});

// What the outermost level's draft of n tokens takes, in ms, on average: in the chain of its first
// children where it is a tree. nullopt as above.
std::optional<double> predicted_draft_ms(const MethodSpec& method, const StepCurves& steps,
                                         std::span<const AcceptanceCurve> acceptance,
                                         const Gammas& gammas, int n, const LoopCosts& costs = {});
// What one pass of so many rows takes in the loop, in ms.
double predicted_pass_ms(const StepCurve& step, int rows, const Gammas& gammas,
                         const LoopCosts& costs);

// The gammas of least predicted time: those that `chosen` names are searched in [0, max], the
// others stay as given. A gamma of 0 is "do not speculate", an inner one "without the drafter";
// with a gamma of 0 the inner one is 0, too, if it is searched. Of equal times the least gammas,
// outer before inner. nullopt as above.
struct GammaChoice {
  bool gamma = false, inner_gamma = false;
};
std::optional<Gammas> choose_gammas(const MethodSpec& method, const StepCurves& steps,
                                    std::span<const AcceptanceCurve> acceptance, const Gammas& max,
                                    const Gammas& given, const GammaChoice& chosen,
                                    const LoopCosts& costs = {});

// Budgets of small caches that `--budget auto` tries, rising: powers of two up to a quarter of the
// prompt, six of them, and `usual`, what a run without `auto` has, if it leaves anything out. All
// are multiples of the chunk, at least kLeastTriedBudget and two chunks, or there is only the least
// of those. In tokens.
inline constexpr std::int64_t kLeastTriedBudget = 64;
std::vector<std::int64_t> budgets_to_try(std::int64_t prefill, int chunk_size, std::int64_t usual);

}  // namespace triforce
