// Tests: tests/measure/tuning_model_test.cpp
#include "measure/tuning_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "core/piecewise_linear.h"
#include "triforce/error.h"

namespace triforce {
namespace {

// Tokens of the largest tree that is computed; a verification takes kMaxProposals.
constexpr int kComputedTreeTokens = 512;
// Gammas that a surface shows.
constexpr std::array<int, 13> kShownGammas = {0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, kUsualGamma};

std::size_t index_of(Phase phase) { return static_cast<std::size_t>(phase); }

// What a pass takes in the loop over what it takes alone, by its rows.
using Factors = std::vector<std::pair<double, double>>;

void add_factor(const ProbeSums& sums, Pass pass, Factors& factors) {
  const double ms = sums.phase_ms[index_of(phase_of(pass))];
  if (sums.step_ms[pass] <= 0 || ms <= 0) return;
  factors.emplace_back(sums.rows_of[pass] / sums.passes_of[pass], ms / sums.step_ms[pass]);
}

StepCurve scaled(const StepCurve& curve, const Factors& factors) {
  std::set<int> rows;
  for (const auto& point : curve.points) rows.insert(point.first);
  for (const auto& factor : factors) {
    rows.insert(
        std::clamp(static_cast<int>(std::lround(factor.first)), *rows.begin(), *rows.rbegin()));
  }
  StepCurve out;
  for (const int r : rows) {
    const double factor = factors.empty() ? 1 : piecewise_linear<double>(factors, r);
    out.points.emplace_back(r, curve.at(r) * factor);
  }
  return out;
}

double per(double ms, std::int64_t n) { return n > 0 ? ms / static_cast<double>(n) : 0; }

// The rate at which `gamma` proposals yield what the curve's rates do.
std::optional<double> alpha_of(const AcceptanceCurve& curve, int gamma) {
  if (gamma == 0) return std::nullopt;
  double tokens = 1, reached = curve.offered;
  for (int i = 0; i < gamma; ++i) tokens += reached *= curve.at(i);
  return alpha_from_tokens_per_round(tokens, gamma);
}

TuningPoint point_of(const MethodModel& model, const BudgetModel& budget, TunedSetting setting,
                     double ms, std::int64_t context) {
  TuningPoint p{context, std::move(setting), ms, {}, {}};
  const Gammas gammas = gammas_of(p.setting);
  if (!p.setting.tree) p.outer_alpha = alpha_of(budget.acceptance.back(), gammas.gamma);
  if (model.method->levels() > 1 && gammas.gamma > 0) {
    p.inner_alpha = alpha_of(budget.acceptance.front(), gammas.inner_gamma);
  }
  return p;
}

// A tree without branches is a gamma.
TunedSetting setting_of(const MethodModel& model, std::size_t budget, const DraftTree& tree,
                        int inner_gamma) {
  TunedSetting s =
      setting_of(*model.method, model.budgets[budget].budget, {tree.depth(), inner_gamma});
  if (!tree.is_chain()) s.tree.emplace(tree.parents().begin(), tree.parents().end());
  return s;
}

// Those of up to so many nodes, for powers of two and for all that there may be.
std::vector<TunedSetting> best_trees(const MethodModel& model, std::size_t budget,
                                     TreeLimits limits, int inner_gamma) {
  std::vector<TunedSetting> trees;
  const TreeCosts costs = model.tree_costs(budget, inner_gamma);
  const int most = limits.nodes;
  for (limits.nodes = 1; limits.nodes < 2 * most; limits.nodes *= 2) {
    limits.nodes = std::min(limits.nodes, most);
    const TimedTree best = fastest_tree(*model.budgets[budget].children, costs, limits);
    trees.push_back(setting_of(model, budget, best.tree, inner_gamma));
  }
  return trees;
}

// The setting of least predicted time. nullopt: what it needs was not measured.
std::optional<TunedSetting> best_setting(const MethodModel& model, std::size_t budget,
                                         const GammaSpace& space) {
  const BudgetModel& b = model.budgets[budget];
  const std::optional<Gammas> best = choose_gammas(*model.method, b.steps, b.acceptance, space.max,
                                                   space.given, space.chosen, model.costs);
  if (!best) return std::nullopt;
  const TunedSetting chain = setting_of(*model.method, b.budget, *best);
  if (!space.tree || !b.children) return chain;
  if (space.tree_tokens > 0) {
    const TreeLimits limits{.nodes = space.tree_tokens, .depth = space.tree->depth};
    const BestTrees trees(*b.children, limits);
    return setting_of(model, budget, trees.tree(limits.nodes), best->inner_gamma);
  }
  TunedSetting fastest = chain;
  for (const TunedSetting& tree : best_trees(model, budget, *space.tree, best->inner_gamma)) {
    if (*model.ms_per_token(budget, tree) < *model.ms_per_token(budget, fastest)) fastest = tree;
  }
  return fastest;
}

// Predictions for the best trees of up to so many nodes, for powers of two.
void add_trees(const MethodModel& model, std::size_t budget, const GammaSpace& space,
               std::int64_t context, CaseTuning& tuning) {
  const TunedSetting none = setting_of(*model.method, model.budgets[budget].budget, {});
  const auto add = [&](const TunedSetting& s) {
    const auto same = [&](const TuningPoint& p) { return p.setting == s; };
    if (std::ranges::any_of(tuning.surface, same)) return;
    tuning.surface.push_back(
        point_of(model, model.budgets[budget], s, *model.ms_per_token(budget, s), context));
  };
  add(none);
  const int inner_gamma = tuning.chosen.inner_gamma.value_or(0);
  for (const TunedSetting& tree : best_trees(model, budget, *space.tree, inner_gamma)) add(tree);
  if (model.budgets[budget].budget == tuning.chosen.budget) add(tuning.chosen);
}

void add_surface(const MethodModel& model, const GammaSpace& space, std::int64_t context,
                 CaseTuning& tuning) {
  std::set<int> gammas = {space.given.gamma};
  if (space.chosen.gamma) {
    gammas = {tuning.chosen.gamma};
    for (const int g : kShownGammas) {
      if (g <= space.max.gamma) gammas.insert(g);
    }
  }
  GammaSpace row = space;
  row.chosen.gamma = false;
  for (std::size_t b = 0; b < model.budgets.size(); ++b) {
    if (space.tree && model.budgets[b].children) {
      add_trees(model, b, space, context, tuning);
      continue;
    }
    for (const int gamma : gammas) {
      row.given.gamma = gamma;
      const std::optional<TunedSetting> best = best_setting(model, b, row);
      if (!best) continue;
      tuning.surface.push_back(
          point_of(model, model.budgets[b], *best, *model.ms_per_token(b, *best), context));
    }
  }
}

}  // namespace

AcceptanceCurve measured_acceptance(const LevelCounters& level) {
  double tested = 0, accepted = 0;
  for (std::size_t i = 0; i < level.tested_at.size(); ++i) {
    tested += static_cast<double>(level.tested_at[i]);
    accepted += static_cast<double>(level.accepted_at[i]);
  }
  const double all = (accepted + 1) / (tested + 2);  // the rule of succession
  AcceptanceCurve curve;
  for (std::size_t i = 0; i < level.tested_at.size() && level.tested_at[i] > 0; ++i) {
    curve.rates.push_back((static_cast<double>(level.accepted_at[i]) + kPriorTests * all) /
                          (static_cast<double>(level.tested_at[i]) + kPriorTests));
  }
  curve.rates.push_back(all);
  if (level.drafted < level.requested) {
    curve.offered = static_cast<double>(level.drafted) / static_cast<double>(level.requested);
  }
  return curve;
}

ChildRates measured_child_rates(const AcceptanceVector& vector) {
  constexpr double kJeffreys = 0.5;
  std::vector<double> tested, accepted;  // of all depths
  for (std::size_t d = 0; d < vector.tested.size(); ++d) {
    tested.resize(std::max(tested.size(), vector.tested[d].size()));
    accepted.resize(tested.size());
    for (std::size_t r = 0; r < vector.tested[d].size(); ++r) {
      tested[r] += static_cast<double>(vector.tested[d][r]);
      accepted[r] += static_cast<double>(vector.accepted[d][r]);
    }
  }
  std::vector<double> all;
  for (std::size_t r = 0; r < tested.size(); ++r) {
    const double outcomes = static_cast<double>(tested.size()) + 1;
    all.push_back((accepted[r] + kJeffreys) / (tested[r] + kJeffreys * outcomes));
  }
  ChildRates rates;
  for (std::size_t d = 0; d < vector.tested.size() && vector.tested[d].front() > 0; ++d) {
    std::vector<double>& of_depth = rates.by_depth.emplace_back(all);
    for (std::size_t r = 0; r < vector.tested[d].size(); ++r) {
      of_depth[r] = (static_cast<double>(vector.accepted[d][r]) + kPriorTests * all[r]) /
                    (static_cast<double>(vector.tested[d][r]) + kPriorTests);
    }
  }
  rates.by_depth.push_back(all);
  // Ranks that were tested unequally often may sum up to more than there is.
  for (std::vector<double>& of_depth : rates.by_depth) {
    const double sum = std::accumulate(of_depth.begin(), of_depth.end(), 0.0);
    for (double& rate : of_depth) rate /= std::max(1.0, sum);
  }
  return rates;
}

void pool_violators(std::vector<LevelCounters>& of_rising_budgets) {
  struct Block {
    LevelCounters sum;
    std::size_t budgets = 1;
  };
  std::vector<Block> blocks;
  for (const LevelCounters& level : of_rising_budgets) {
    blocks.push_back({level, 1});
    while (blocks.size() > 1 &&
           blocks[blocks.size() - 2].sum.acceptance_rate() > blocks.back().sum.acceptance_rate()) {
      const Block last = std::move(blocks.back());
      blocks.pop_back();
      blocks.back().sum.merge(last.sum);
      blocks.back().budgets += last.budgets;
    }
  }
  auto level = of_rising_budgets.begin();
  for (const Block& block : blocks) {
    level = std::fill_n(level, block.budgets, block.sum);
  }
}

void ProbeSums::add(const MethodSpec& method, const StepCurves& steps, const RunMetrics& run) {
  for (std::size_t i = 0; i < phase_ms.size(); ++i) phase_ms[i] += run.phase_ms[i];
  tokens += std::ssize(run.tokens);
  rounds += run.rounds;
  const auto count = [&](Pass pass, std::int64_t n, double rows_each) {
    if (n == 0) return;
    const auto passes_here = static_cast<double>(n);
    step_ms[pass] += passes_here * steps[pass].at(rows_each);
    passes_of[pass] += passes_here;
    rows_of[pass] += passes_here * rows_each;
    passes += n;
    rows += std::llround(passes_here * rows_each);
  };
  count(method.proposer(), passes_of_proposer(method, run), 1);
  for (int l = 0; l < method.levels(); ++l) {
    const LevelCounters& level = run.levels[static_cast<std::size_t>(l)];
    const double drafted = per(static_cast<double>(level.drafted), level.rounds);
    count(method.verifier(l), level.rounds, drafted + 1);
  }
}

void ProbeSums::add(const ProbeSums& other) {
  for (std::size_t i = 0; i < phase_ms.size(); ++i) phase_ms[i] += other.phase_ms[i];
  for (const PassSpec& p : kPassTable) {
    step_ms[p.pass] += other.step_ms[p.pass];
    passes_of[p.pass] += other.passes_of[p.pass];
    rows_of[p.pass] += other.rows_of[p.pass];
  }
  tokens += other.tokens;
  rounds += other.rounds;
  passes += other.passes;
  rows += other.rows;
}

void MethodModel::calibrate(const ProbeSums& baseline) {
  std::vector<ProbeSums> of_all;  // sums over the budgets, one of each pair of gammas
  ProbeSums all;
  for (const BudgetModel& b : budgets) {
    of_all.resize(std::max(of_all.size(), b.probes.size()));
    for (std::size_t i = 0; i < b.probes.size(); ++i) of_all[i].add(b.probes[i]);
  }
  for (const ProbeSums& probe : of_all) all.add(probe);
  const auto ms = [&](Phase phase) { return all.phase_ms[index_of(phase)]; };
  costs = {per(ms(Phase::kHostGap), all.passes), per(ms(Phase::kSampling), all.rows),
           per(ms(Phase::kCacheUpdate), all.rounds), per(ms(Phase::kRebuild), all.tokens),
           costs.lanes};
  for (const Pass pass : method->passes()) {
    for (BudgetModel& b : budgets) {
      StepCurve& curve = b.steps[pass];
      if (curve.points.empty()) continue;
      Factors factors;
      if (pass == kFullPass) add_factor(baseline, pass, factors);
      for (const ProbeSums& p : spec_of(pass).has_budget ? b.probes : of_all) {
        add_factor(p, pass, factors);
      }
      std::ranges::stable_sort(factors,
                               [](const auto& x, const auto& y) { return x.first < y.first; });
      curve = scaled(curve, factors);
    }
  }
}

std::optional<double> MethodModel::ms_per_token(std::size_t budget,
                                                const TunedSetting& setting) const {
  const BudgetModel& b = budgets.at(budget);
  const Gammas gammas = gammas_of(setting);
  if (setting.tree) {
    const DraftTree tree(*setting.tree);
    const RoundForecast round =
        predicted_round(tree, *b.children, tree_costs(budget, gammas.inner_gamma));
    return round.ms_per_token() + costs.per_token_ms;
  }
  const auto round = predicted_round(*method, b.steps, b.acceptance, gammas, costs);
  return round ? std::optional(round->ms_per_token()) : std::nullopt;
}

TreeCosts MethodModel::tree_costs(std::size_t budget, int inner_gamma) const {
  constexpr int kLongDraft = 16;
  const BudgetModel& b = budgets.at(budget);
  const Gammas gammas{kTriedTreeLevels, inner_gamma};
  TreeCosts of;
  if (method->levels() > 1) {
    const double ms =
        *predicted_draft_ms(*method, b.steps, b.acceptance, gammas, kLongDraft, costs) / kLongDraft;
    of.draft_ms = [ms](int nodes) { return nodes * ms; };
  } else {
    of.draft_ms = [&, gammas](int rows) {
      return predicted_pass_ms(b.steps[method->proposer()], rows, gammas, costs);
    };
  }
  of.verify_ms = [&, gammas](int rows) {
    return predicted_pass_ms(b.steps[method->verifier(method->levels() - 1)], rows, gammas, costs) +
           costs.per_round_ms;
  };
  return of;
}

std::vector<std::size_t> rank_budgets(std::span<const MethodModel> models, const GammaSpace& space,
                                      RankedBy by) {
  const bool of_all = by == RankedBy::kAll;
  std::vector<double> logs;  // sums over the methods, or of the fastest
  for (const MethodModel& model : models) {
    if (!model.method->has_budget()) continue;
    logs.resize(model.budgets.size(), of_all ? 0 : INFINITY);
    for (std::size_t b = 0; b < logs.size(); ++b) {
      const std::optional<TunedSetting> best = best_setting(model, b, space);
      TF_CHECK(best, "{} was not measured", model.method->name);
      const double log = std::log(*model.ms_per_token(b, *best));
      logs[b] = of_all ? logs[b] + log : std::min(logs[b], log);
    }
  }
  std::vector<std::size_t> order(std::max<std::size_t>(logs.size(), 1));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return logs[a] < logs[b]; });
  return order;
}

std::vector<std::int64_t> better_half(std::int64_t usual, std::vector<std::int64_t> ranked) {
  ranked.resize((ranked.size() + 1) / 2);
  std::erase(ranked, usual);
  ranked.insert(ranked.begin(), usual);
  return ranked;
}

TunedSetting setting_of(const MethodSpec& method, std::optional<std::int64_t> budget,
                        const Gammas& gammas) {
  TunedSetting s{budget, gammas.gamma, {}};
  if (method.levels() > 1) s.inner_gamma = gammas.inner_gamma;
  return s;
}

Gammas gammas_of(const TunedSetting& setting) {
  return {setting.gamma, setting.inner_gamma.value_or(0)};
}

std::optional<DraftTree> draft_of(const TunedSetting& setting) {
  if (setting.tree) return DraftTree(*setting.tree);
  return setting.gamma > 0 ? std::optional(DraftTree::chain(setting.gamma)) : std::nullopt;
}

CaseTuning describe_choice(const MethodModel& model, std::size_t budget, const GammaSpace& space,
                           const TunedSetting& usual, std::int64_t context) {
  const std::optional<TunedSetting> best = best_setting(model, budget, space);
  TF_CHECK(best, "{} was not measured", model.method->name);
  CaseTuning t;
  t.chosen = *best;
  t.predicted_ms_per_token = *model.ms_per_token(budget, t.chosen);
  for (std::size_t b = 0; b < model.budgets.size(); ++b) {
    if (model.budgets[b].budget != usual.budget || space.tree_tokens > 0) continue;
    t.defaults.emplace();
    t.defaults->setting = usual;
    t.defaults->predicted_ms_per_token = *model.ms_per_token(b, usual);
  }
  add_surface(model, space, context, t);
  if (space.tree && model.budgets[budget].children) {
    const BestTrees trees(*model.budgets[budget].children,
                          {.nodes = kComputedTreeTokens, .depth = space.tree->depth});
    t.best_trees.emplace();
    for (int nodes = 1; nodes <= kComputedTreeTokens; nodes *= 2) {
      t.best_trees->push_back({nodes, trees.tokens(nodes)});
    }
  }
  return t;
}

}  // namespace triforce
