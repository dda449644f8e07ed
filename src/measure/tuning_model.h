// From what was measured on tuning prompts to the settings of least predicted time: pure functions,
// so that tests can make up the machine.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "options/config.h"
#include "triforce/fastest_tree.h"
#include "triforce/predict.h"
#include "triforce/report.h"

namespace triforce {

// Rates by position from the counters of a level: each is drawn towards that of all positions
// together as if kPriorTests more proposals had been tested there; beyond the last position that
// was tested it is that of all.
inline constexpr double kPriorTests = 16;
AcceptanceCurve measured_acceptance(const LevelCounters& level);

// Rates by depth and rank from the counters of drafts that are trees. Of all depths together they
// are those of Jeffreys' prior over the ranks and none of them. Each depth is drawn towards these
// as if kPriorTests more nodes had been tested there.
ChildRates measured_child_rates(const AcceptanceVector& vector);

// A larger cache of the same prompt is accepted no less often, so that where the counters of rising
// budgets say otherwise, chance does: such neighbours get the sum of their counters (isotonic
// regression of the acceptance rate by pooling adjacent violators), and no budget is chosen for
// having been lucky beside a larger one.
void pool_violators(std::vector<LevelCounters>& of_rising_budgets);

// Generations of one method with the same gammas on tuning prompts, and what their passes would
// have taken at their measured step times.
struct ProbeSums {
  PerPass<double> step_ms, passes_of, rows_of;  // at step times, and passes and their rows
  PhaseTimes phase_ms{};
  std::int64_t tokens = 0, rounds = 0, passes = 0, rows = 0;  // rows of probabilities
  void add(const MethodSpec& method, const StepCurves& steps, const RunMetrics& run);
  void add(const ProbeSums& other);
};

// One budget as it was measured for one method.
struct BudgetModel {
  std::optional<std::int64_t> budget;       // tokens; nullopt: the method has none
  StepCurves steps;                         // single passes
  AcceptanceCurves acceptance;              // of a tree's first children
  std::optional<ChildRates> children = {};  // of the outermost level, where it may draft a tree
  std::vector<ProbeSums> probes;            // one of each pair of gammas
};

// A method with what its loop takes. Passes take longer in the loop than alone, where their data
// was at hand and nothing else ran: by a factor that is taken to depend on their rows and, where
// the cache has a budget, on that: a small cache stays in the processor's caches while its passes
// run alone, but not in the loop.
struct MethodModel {
  const MethodSpec* method = nullptr;
  std::vector<BudgetModel> budgets;  // rising
  LoopCosts costs;

  // Scales the steps by what each of the probes took in the loop at its rows, linear between these:
  // those of a budget's own cache by that budget's probes, others by all, and single rows of the
  // full cache by `baseline`, autoregressive decoding. Sets the costs.
  void calibrate(const ProbeSums& baseline);
  // nullopt: what it needs was not measured.
  std::optional<double> ms_per_token(std::size_t budget, const TunedSetting& setting) const;
  // Of draft trees, where such may be chosen, with this inner gamma. Of a level that speculates
  // itself each node with children takes as long as a token of a long draft.
  TreeCosts tree_costs(std::size_t budget, int inner_gamma) const;
};

// What may be chosen of gammas, and what it is where it may not.
struct GammaSpace {
  Gammas max, given;
  GammaChoice chosen;
  std::optional<TreeLimits> tree = {};  // of trees that may be chosen in place of a gamma
  int tree_tokens = 0;  // the tree of so many that most are accepted of; 0: the fastest
};

// Whether a budget is for all methods or for the one that is fastest with it.
enum class RankedBy : std::uint8_t { kAll, kFastest };
// Indices of the budgets, best first: by the geometric mean, or the least, of the times predicted
// for the methods' best gammas. Methods without a budget do not count; all others have as many
// budgets. Only the first one if there is no such method.
std::vector<std::size_t> rank_budgets(std::span<const MethodModel> models, const GammaSpace& space,
                                      RankedBy by);

// The budgets that the next prompt is for: `usual`, then the better half of `ranked`, best first.
std::vector<std::int64_t> better_half(std::int64_t usual, std::vector<std::int64_t> ranked);

// Chosen setting, predictions and surface of a method at a chosen budget (an index; 0 for methods
// without one). `usual`: the setting without auto; the comparison is left out where its budget is
// none of the model's.
CaseTuning describe_choice(const MethodModel& model, std::size_t budget, const GammaSpace& space,
                           const TunedSetting& usual, std::int64_t context);
// As results say it.
TunedSetting setting_of(const MethodSpec& method, std::optional<std::int64_t> budget,
                        const Gammas& gammas);
Gammas gammas_of(const TunedSetting& setting);
// What its outermost level asks for. nullopt: nothing.
std::optional<DraftTree> draft_of(const TunedSetting& setting);

}  // namespace triforce
