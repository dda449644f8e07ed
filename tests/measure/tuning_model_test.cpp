// From probes to settings, on machines that are made up.
#include "measure/tuning_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "report/printers.h"

namespace triforce {
namespace {

std::size_t at(Phase p) { return static_cast<std::size_t>(p); }

// A larger budget is accepted more often and takes longer.
MethodModel sample_model(double outer_at_once = 0.55) {
  MethodModel m{&spec_of(kDefaultMethod), {}, {0.02, 0.003, 0.05, 0.01}};
  double outer = outer_at_once, ms = 0.4;
  for (const std::int64_t budget : {128, 256, 512, 1024, 2048}) {
    BudgetModel b;
    b.budget = budget;
    b.steps[Pass::kDraft].points = {{1, 0.08}};
    b.steps[Pass::kRetrieval].points = {{1, ms}, {8, 1.3 * ms}, {32, 2.2 * ms}};
    b.steps[Pass::kFull].points = {{1, 2.5}, {8, 3.5}, {32, 7}};
    b.acceptance = {{{0.8, 0.7, 0.6}}, {{outer, outer + 0.05, outer + 0.02}}};
    m.budgets.push_back(std::move(b));
    outer += 0.9 * (0.93 - outer) / 2;
    ms *= 1.5;
  }
  return m;
}

double predicted(const MethodModel& m, std::size_t budget, const Gammas& gammas) {
  return *m.ms_per_token(budget, setting_of(*m.method, m.budgets[budget].budget, gammas));
}

const GammaSpace kAll{{kUsualGamma, kUsualGamma}, {kUsualGamma, kUsualGamma}, {true, true}};

TEST(RankBudgets, IsThatOfAnExhaustiveSearch) {
  for (const double outer : {0.1, 0.3, 0.55, 0.8, 0.92}) {
    SCOPED_TRACE(outer);
    const MethodModel model = sample_model(outer);
    const std::size_t budget = rank_budgets({&model, 1}, kAll, RankedBy::kAll).front();
    const CaseTuning t = describe_choice(model, budget, kAll, {2048, 6, 1}, 15872);
    EXPECT_EQ(t.chosen.budget, model.budgets[budget].budget);
    double least = INFINITY;
    for (std::size_t b = 0; b < model.budgets.size(); ++b) {
      for (int g = 0; g <= kUsualGamma; ++g) {
        for (int k = 0; k <= kUsualGamma; ++k) {
          least = std::min(least, predicted(model, b, {g, k}));
        }
      }
    }
    EXPECT_DOUBLE_EQ(t.predicted_ms_per_token, least);
    EXPECT_DOUBLE_EQ(*model.ms_per_token(budget, t.chosen), least);
    ASSERT_TRUE(t.defaults.has_value());
    EXPECT_DOUBLE_EQ(t.defaults->predicted_ms_per_token, predicted(model, 4, {6, 1}));
    EXPECT_GE(t.defaults->predicted_ms_per_token, least);
    // The surface has it, all budgets, and nothing faster.
    bool found = false;
    for (const TuningPoint& p : t.surface) {
      EXPECT_GE(p.ms_per_token, least);
      EXPECT_EQ(p.context, 15872);
      found = found || (p.ms_per_token == least && p.setting.budget == t.chosen.budget &&
                        p.setting.gamma == t.chosen.gamma);
    }
    EXPECT_TRUE(found);
    EXPECT_EQ(t.surface.back().setting.budget, 2048);
  }
}

// The budgets at which these models are fastest are not all the same, or the search would be no
// search.
TEST(RankBudgets, DependsOnWhatIsAccepted) {
  const MethodModel rarely = sample_model(0.1), often = sample_model(0.92);
  EXPECT_GT(rank_budgets({&rarely, 1}, kAll, RankedBy::kAll).front(),
            rank_budgets({&often, 1}, kAll, RankedBy::kAll).front());
}

// Where only the fastest method is kept, the other's times do not count.
TEST(RankBudgets, OfTheFastestMethodIsItsOwn) {
  const std::vector<MethodModel> both = {sample_model(0.1), sample_model(0.92)};
  EXPECT_EQ(rank_budgets(both, kAll, RankedBy::kFastest).front(),
            rank_budgets({&both[1], 1}, kAll, RankedBy::kAll).front());
  EXPECT_NE(rank_budgets(both, kAll, RankedBy::kFastest).front(),
            rank_budgets({&both[0], 1}, kAll, RankedBy::kAll).front());
}

TEST(RankBudgets, OfSeveralMethodsIsTheirCompromise) {
  const std::vector<MethodModel> both = {sample_model(0.1), sample_model(0.92)};
  const auto product = [&](std::size_t b) {
    double p = 1;
    for (const MethodModel& m : both) {
      double least = INFINITY;
      for (int g = 0; g <= kUsualGamma; ++g) {
        for (int k = 0; k <= kUsualGamma; ++k) least = std::min(least, predicted(m, b, {g, k}));
      }
      p *= least;
    }
    return p;
  };
  const std::vector<std::size_t> order = rank_budgets(both, kAll, RankedBy::kAll);
  std::vector<std::size_t> all = order;
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  for (std::size_t i = 1; i < order.size(); ++i) {
    EXPECT_LE(product(order[i - 1]), product(order[i]));
  }
}

TEST(BetterHalf, KeepsTheUsualBudgetInFront) {
  using Budgets = std::vector<std::int64_t>;
  EXPECT_EQ(better_half(64, {8, 16, 32, 64, 128, 256, 512}), (Budgets{64, 8, 16, 32}));
  EXPECT_EQ(better_half(8, {16, 8, 32, 64, 128, 256}), (Budgets{8, 16, 32}));
  EXPECT_EQ(better_half(8, {16, 8}), (Budgets{8, 16}));
  EXPECT_EQ(better_half(8, {8, 16}), (Budgets{8}));
  EXPECT_EQ(better_half(8, {8}), (Budgets{8}));
}

// Only what is auto is searched.
TEST(Choice, KeepsWhatIsGiven) {
  const MethodModel model = sample_model();
  const CaseTuning t = describe_choice(model, 1, {{5, 3}, {5, 3}, {false, true}}, {256, 5, 1}, 9);
  EXPECT_EQ(t.chosen.budget, 256);
  EXPECT_EQ(t.chosen.gamma, 5);
  EXPECT_LE(*t.chosen.inner_gamma, 3);
  for (const TuningPoint& p : t.surface) EXPECT_EQ(p.setting.gamma, 5);
  EXPECT_EQ(t.surface.size(), model.budgets.size());
}

// A machine whose small cache costs what the full one does, with drafts that are not accepted.
TEST(Choice, IsNotToSpeculateWhereThatIsFaster) {
  MethodModel model = sample_model(0.02);
  for (BudgetModel& b : model.budgets) {
    b.steps[Pass::kRetrieval].points = {{1, 2.4}};
    b.acceptance = constant_acceptance(std::vector{0.05, 0.02});
  }
  const std::size_t budget = rank_budgets({&model, 1}, kAll, RankedBy::kAll).front();
  const CaseTuning t = describe_choice(model, budget, kAll, {2048, 6, 1}, 15872);
  EXPECT_EQ(t.chosen.gamma, 0);
  EXPECT_EQ(t.chosen.inner_gamma, 0);
  CaseResult c;
  c.name = "triforce";
  c.tuning = t;
  const std::string text = tuning_text(c);
  EXPECT_NE(text.find("do not speculate: autoregressive decoding is predicted "), std::string::npos)
      << text;
  double best = INFINITY;
  for (const TuningPoint& p : t.surface) {
    if (p.setting.gamma > 0) best = std::min(best, p.ms_per_token);
  }
  EXPECT_NE(text.find(fmt::format("predicted {:.0f}% faster",
                                  100 * (best / t.predicted_ms_per_token - 1))),
            std::string::npos)
      << text;
}

// Rows of the full cache that cost little, and children whose rates are known.
MethodModel tree_model(Method method, double row_ms) {
  MethodModel m{&spec_of(method), {}, {0.02, 0.001, 0.05, 0.01}};
  BudgetModel b;
  if (m.method->has_budget()) b.budget = 256;
  for (const Pass pass : {Pass::kDraft, Pass::kRetrieval, Pass::kFull}) {
    const double ms = pass == Pass::kFull ? 8 : pass == Pass::kDraft ? 0.1 : 1;
    b.steps[pass].points = {{1, ms}, {129, ms + 128 * row_ms}};
  }
  b.children = ChildRates{{{0.6, 0.2, 0.08, 0.03}, {0.5, 0.2, 0.1, 0.05}}};
  if (m.method->levels() > 1) b.acceptance.push_back({{0.7}});
  b.acceptance.push_back({{0.6, 0.5}});
  m.budgets.push_back(std::move(b));
  return m;
}

const GammaSpace kTrees{{32, 6}, {32, 1}, {true, true}, TreeLimits{.nodes = 48, .depth = 32}};

TEST(Choice, IsATreeWhereRowsCostLittle) {
  for (const Method method : {Method::kDraft, Method::kRetrieval, Method::kTriForce}) {
    SCOPED_TRACE(to_string(method));
    const MethodModel model = tree_model(method, 0.002);
    const CaseTuning t = describe_choice(model, 0, kTrees, {model.budgets[0].budget, 6, 1}, 4096);
    ASSERT_TRUE(t.chosen.tree.has_value());
    const DraftTree tree(*t.chosen.tree);
    EXPECT_EQ(t.chosen.gamma, tree.depth());
    EXPECT_FALSE(tree.is_chain());
    EXPECT_DOUBLE_EQ(t.predicted_ms_per_token, *model.ms_per_token(0, t.chosen));
    // No chain is faster, none of the trees shown is, and what is shown has what was chosen.
    for (int gamma = 0; gamma <= 32; ++gamma) {
      const Gammas chain{gamma, t.chosen.inner_gamma.value_or(0)};
      EXPECT_LT(t.predicted_ms_per_token, predicted(model, 0, chain));
    }
    bool found = false;
    for (const TuningPoint& p : t.surface) {
      EXPECT_GE(p.ms_per_token, t.predicted_ms_per_token);
      found = found || p.setting == t.chosen;
    }
    EXPECT_TRUE(found);
    EXPECT_GE(t.surface.size(), 6U);
    CaseResult c;
    c.name = "triforce";
    c.tuning = t;
    EXPECT_NE(tuning_text(c).find(fmt::format("a tree of {} tokens", tree.nodes())),
              std::string::npos)
        << tuning_text(c);
  }
}

// Of so many tokens, whatever they cost; beside them what larger trees would bring.
TEST(Choice, IsTheTreeOfMostTokensWhereTheirNumberIsGiven) {
  GammaSpace space = kTrees;
  space.tree_tokens = 20;
  const MethodModel model = tree_model(Method::kDraft, 3);
  const CaseTuning t = describe_choice(model, 0, space, {{}, 6, {}}, 4096);
  const BestTrees best(*model.budgets[0].children, {.nodes = 512, .depth = 32});
  ASSERT_TRUE(t.chosen.tree.has_value());
  EXPECT_EQ(t.chosen.tree->size(), 20U);
  EXPECT_NEAR(tokens_per_verification(DraftTree(*t.chosen.tree), *model.budgets[0].children),
              best.tokens(20), 1e-9);
  EXPECT_FALSE(t.defaults.has_value());
  ASSERT_EQ(t.best_trees->size(), 10U);
  EXPECT_EQ(t.best_trees->back().nodes, 512);
  EXPECT_DOUBLE_EQ(t.best_trees->back().tokens, best.tokens(512));
  EXPECT_GT((*t.best_trees)[9].tokens, (*t.best_trees)[7].tokens);
}

// One token of a chain is not worth its pass, while a level of a tree is.
TEST(Choice, IsATreeWhereNoChainIsWorthIt) {
  MethodModel model = tree_model(Method::kRetrieval, 0.001);
  model.budgets[0].children = ChildRates{{{0.12, 0.12, 0.12, 0.12, 0.12, 0.12, 0.12}}};
  model.budgets[0].acceptance = constant_acceptance(std::vector{0.12});
  const CaseTuning t = describe_choice(model, 0, kTrees, {256, 6, {}}, 4096);
  int best = 0;
  for (int gamma = 1; gamma <= 32; ++gamma) {
    if (predicted(model, 0, {gamma, 0}) < predicted(model, 0, {best, 0})) best = gamma;
  }
  EXPECT_EQ(best, 0);
  ASSERT_TRUE(t.chosen.tree.has_value());
  EXPECT_LT(t.predicted_ms_per_token, predicted(model, 0, {0, 0}));
}

// A pass takes nothing but its rows: no level is worth more than one child.
TEST(Choice, IsNoTreeWhereRowsAreAllThatCosts) {
  const MethodModel model = tree_model(Method::kDraft, 3);
  const CaseTuning t = describe_choice(model, 0, kTrees, {{}, 6, {}}, 4096);
  EXPECT_FALSE(t.chosen.tree.has_value());
  EXPECT_LE(t.chosen.gamma, 3);
}

// A draft of a tree costs a pass for each level with parents, over these, and the last verification
// all nodes and the root.
TEST(Choice, ATreeCostsItsPasses) {
  const MethodModel model = tree_model(Method::kDraft, 0.01);
  TunedSetting s{{}, 2, {}};
  s.tree = {{-1, -1, -1, 0, 0, 1}};
  const auto pass = [](double ms, int rows) {
    return ms + 0.01 * (rows - 1) + rows * 0.001 + 0.02;
  };
  const double tokens = 1 + 0.6 + 0.2 + 0.08 + 0.6 * (0.5 + 0.2) + 0.2 * 0.5;
  EXPECT_NEAR(*model.ms_per_token(0, s),
              (pass(0.1, 1) + pass(0.1, 2) + pass(8, 7) + 0.05) / tokens + 0.01, 1e-12);
  // A level that speculates itself takes as long for each parent.
  const MethodModel deep = tree_model(Method::kTriForce, 0.01);
  s.inner_gamma = 1;
  const double three_parents =
      3 *
      *predicted_draft_ms(*deep.method, deep.budgets[0].steps, deep.budgets[0].acceptance, {2, 1},
                          16, deep.costs) /
      16;
  EXPECT_NEAR(*deep.ms_per_token(0, s), (three_parents + pass(8, 7) + 0.05) / tokens + 0.01, 1e-12);
}

TEST(MeasuredChildRates, AreByDepthWhereThereIsEnoughOfThem) {
  AcceptanceVector v;
  v.tested = {{100000, 100000}, {40, 40}, {0, 0}};
  v.accepted = {{60000, 10000}, {10, 2}, {0, 0}};
  const ChildRates rates = measured_child_rates(v);
  ASSERT_EQ(rates.by_depth.size(), 3U);  // and what stands for all depths beyond
  EXPECT_NEAR(rates.at(0, 0), 0.6, 1e-3);
  EXPECT_NEAR(rates.at(0, 1), 0.1, 1e-3);
  EXPECT_NEAR(rates.at(1, 0), (10 + kPriorTests * 0.6) / (40 + kPriorTests), 1e-3);
  EXPECT_NEAR(rates.at(1, 1), (2 + kPriorTests * 0.1) / (40 + kPriorTests), 1e-3);
  EXPECT_NEAR(rates.at(7, 0), 0.6, 1e-3);
  // Nothing is taken to be impossible or certain, and no node has two accepted children.
  v.tested = {{3, 3, 1}};
  v.accepted = {{3, 0, 0}};
  const ChildRates few = measured_child_rates(v);
  double sum = 0;
  for (const double rate : few.at(0)) {
    EXPECT_GT(rate, 0);
    EXPECT_LT(rate, 1);
    sum += rate;
  }
  EXPECT_LE(sum, 1 + 1e-12);
}

TEST(MeasuredAcceptance, IsByPositionWhereThereIsEnoughOfIt) {
  LevelCounters level;
  level.tested_at = {10000, 4000, 2, 0};
  level.accepted_at = {4000, 3600, 0, 0};
  const AcceptanceCurve curve = measured_acceptance(level);
  ASSERT_EQ(curve.rates.size(), 4U);
  EXPECT_NEAR(curve.at(0), 0.4, 0.001);
  EXPECT_NEAR(curve.at(1), 0.9, 0.002);
  const double all = 7600. / 14002;
  EXPECT_NEAR(curve.at(2), all, 0.07);  // two tests say little
  EXPECT_NEAR(curve.at(3), all, 1e-3);
  EXPECT_NEAR(curve.at(30), all, 1e-3);
  EXPECT_EQ(measured_acceptance({}).at(0), 0.5);  // nothing is known
}

TEST(PoolViolators, IsIsotonicRegression) {
  const auto level = [](std::int64_t accepted, std::int64_t rejected) {
    LevelCounters l;
    for (std::int64_t i = 0; i < accepted; ++i) l.add_round(1, 1, 1);
    for (std::int64_t i = 0; i < rejected; ++i) l.add_round(1, 1, 0);
    return l;
  };
  // .9 and .5 become .6, .95 and .9 become .925; .8 and .93 rise as they should.
  std::vector<LevelCounters> levels = {level(9, 1),  level(15, 15), level(80, 20),
                                       level(95, 5), level(90, 10), level(93, 7)};
  pool_violators(levels);
  const std::vector<double> expected = {.6, .6, .8, .925, .925, .93};
  ASSERT_EQ(levels.size(), expected.size());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    EXPECT_NEAR(levels[i].acceptance_rate(), expected[i], 1e-12);
  }
  EXPECT_EQ(levels[3].tested_at, (std::vector<std::int64_t>{200}));
}

// A loop whose costs are known, as the phases and counters of its generations: they are found
// again, and with them the time per token of the same gammas.
TEST(Calibration, FindsWhatTheLoopTakes) {
  MethodModel model = sample_model();
  const StepCurves& steps = model.budgets[0].steps;
  // 100 outer rounds of 7 proposals each from 400 inner ones of 3; in the loop passes of the
  // smallest budget's cache take 1.25 times as long, of the next one's 1.5 times and so on, of the
  // full one 1.5 times, of the drafter twice.
  const auto factor_of = [](std::size_t budget) {
    return 1.25 + 0.25 * static_cast<double>(budget);
  };
  RunMetrics run;
  run.rounds = 100;
  run.tokens.resize(500);
  LevelCounters inner, outer;
  for (int i = 0; i < 400; ++i) inner.add_round(3, 3, 1);
  for (int i = 0; i < 100; ++i) outer.add_round(6, 7, 4);
  run.levels = {inner, outer};
  run.phase_ms[at(phase_of(Pass::kDraft))] = 2 * 1200 * 0.08;
  run.phase_ms[at(phase_of(Pass::kRetrieval))] = factor_of(0) * 400 * steps[Pass::kRetrieval].at(4);
  run.phase_ms[at(phase_of(kFullPass))] = 1.5 * 100 * steps[Pass::kFull].at(8);
  run.phase_ms[at(Phase::kSampling)] = 0.01 * (1200 + 400 * 4 + 100 * 8);
  run.phase_ms[at(Phase::kHostGap)] = 0.004 * (1200 + 400 + 100);
  run.phase_ms[at(Phase::kCacheUpdate)] = 0.2 * 100;
  run.phase_ms[at(Phase::kRebuild)] = 0.06 * 500;
  RunMetrics alone;
  alone.rounds = 50;
  alone.tokens.resize(50);
  alone.phase_ms[at(phase_of(kFullPass))] = 1.1 * 50 * 2.5;
  for (std::size_t b = 0; b < model.budgets.size(); ++b) {
    BudgetModel& of = model.budgets[b];
    RunMetrics its_run = run;
    its_run.phase_ms[at(phase_of(Pass::kRetrieval))] =
        factor_of(b) * 400 * of.steps[Pass::kRetrieval].at(4);
    of.probes.resize(1);
    of.probes[0].add(*model.method, of.steps, its_run);
  }
  ProbeSums baseline;
  baseline.add(spec_of(kBaselineMethod), steps, alone);
  const MethodModel before = model;
  const StepCurves& steps_before = before.budgets[0].steps;
  model.calibrate(baseline);
  EXPECT_NEAR(model.costs.per_row_ms, 0.01, 1e-12);
  EXPECT_NEAR(model.costs.per_pass_ms, 0.004, 1e-12);
  EXPECT_NEAR(model.costs.per_round_ms, 0.2, 1e-12);
  EXPECT_NEAR(model.costs.per_token_ms, 0.06, 1e-12);
  for (std::size_t b = 0; b < model.budgets.size(); ++b) {
    const StepCurves &was = before.budgets[b].steps, &is = model.budgets[b].steps;
    for (const int rows : {1, 8, 20}) {
      EXPECT_NEAR(is[Pass::kDraft].at(rows), 2 * was[Pass::kDraft].at(rows), 1e-12);
      EXPECT_NEAR(is[Pass::kRetrieval].at(rows), factor_of(b) * was[Pass::kRetrieval].at(rows),
                  1e-12);
      EXPECT_NEAR(is[Pass::kFull].at(rows), (rows == 1 ? 1.1 : 1.5) * was[Pass::kFull].at(rows),
                  1e-12);
    }
  }
  // Of two generations with other gammas each counts at its own rows.
  RunMetrics longer = run;
  longer.levels[1] = LevelCounters();
  for (int i = 0; i < 100; ++i) longer.levels[1].add_round(15, 15, 4);
  longer.phase_ms[at(phase_of(kFullPass))] = 1.2 * 100 * steps_before[Pass::kFull].at(16);
  model = before;
  for (BudgetModel& b : model.budgets) b.probes.clear();
  std::vector<ProbeSums>& both = model.budgets[0].probes;
  both.resize(2);
  both[0].add(*model.method, steps_before, run);
  both[1].add(*model.method, steps_before, longer);
  model.calibrate(baseline);
  const StepCurve &was = steps_before[Pass::kFull], &is = model.budgets[0].steps[Pass::kFull];
  for (const auto& [rows, factor] : {std::pair{1, 1.1}, {8, 1.5}, {16, 1.2}, {32, 1.2}}) {
    EXPECT_NEAR(is.at(rows), factor * was.at(rows), 1e-12) << rows;
  }
}

}  // namespace
}  // namespace triforce
