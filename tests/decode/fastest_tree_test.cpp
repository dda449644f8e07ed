#include "triforce/fastest_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "decode/small_trees.h"
#include "triforce/backend.h"
#include "triforce/best_tree.h"
#include "triforce/format.h"

namespace triforce {
namespace {

// Times of a pass that rise with its rows in random steps. `impossible`: how probable it is that
// there is none from some number of rows on.
std::function<double(int)> random_times(Random& random, double scale, double impossible = 0) {
  std::vector<double> times;
  double ms = scale * random.uniform(.1, 1);
  const double step = random.uniform();
  const int most = random.uniform() < impossible ? random.integer(1, 6) : kMaxProposals + 1;
  for (int rows = 1; rows <= kMaxProposals + 1; ++rows) {
    times.push_back(rows > most ? INFINITY : ms);
    if (random.uniform() < .4) ms += scale * step * random.uniform();
  }
  return [times](int rows) { return times.at(static_cast<std::size_t>(rows - 1)); };
}

bool has_hopeless_nodes(const DraftTree& tree, const ChildRates& rates) {
  for (int i = 0; i < tree.nodes(); ++i) {
    if (rates.at(tree.depth_of(i), tree.rank(i)) == 0) return true;
  }
  return false;
}

TEST(FastestTree, NoTreeOfUpToSevenNodesIsFaster) {
  const std::vector<DraftTree> trees = trees_up_to(7);
  Random random(3);
  double worst = 1;  // of rates that rise with a rank, where the choice is not exact
  for (int round = 0; round < 300; ++round) {
    const bool falling = round % 4 != 0;
    const ChildRates rates = random.rates(round % 3 + 1, falling);
    const TreeCosts costs{
        random_times(random, std::pow(10, random.uniform(-2, .5)), round % 2 == 0 ? 0 : .5),
        random_times(random, 1)};
    const TreeLimits limits{7, random.integer(1, 7), random.integer(1, 4)};
    double least = INFINITY;
    for (const DraftTree& tree : trees) {
      if (!within(tree, limits) || has_hopeless_nodes(tree, rates)) continue;
      least = std::min(least, predicted_round(tree, rates, costs).ms_per_token());
    }
    const TimedTree found = fastest_tree(rates, costs, limits);
    SCOPED_TRACE(fmt::format("seed 3, round {}", round));
    EXPECT_TRUE(within(found.tree, limits));
    const RoundForecast again = predicted_round(found.tree, rates, costs);
    EXPECT_EQ(found.round.ms_per_token(), again.ms_per_token());
    if (falling) {
      EXPECT_NEAR(found.round.ms_per_token(), least, 1e-9 * least);
    } else {
      worst = std::max(worst, found.round.ms_per_token() / least);
    }
  }
  EXPECT_LT(worst, 1.05);
}

// The least time per token over every list of parents and widths: each level has the most probable
// children of the most probable nodes above.
double least_of_all_widths(const std::vector<double>& above, int depth, double ms, double tokens,
                           int left, const ChildRates& rates, const TreeCosts& costs, int nodes) {
  double least = depth == 0 ? INFINITY : (ms + costs.verify_ms(nodes - left + 1)) / tokens;
  std::vector<std::pair<double, std::size_t>> children;  // and their parents
  for (std::size_t parents = 1; parents <= above.size(); ++parents) {
    for (const double rate : rates.at(depth)) {
      children.emplace_back(above[parents - 1] * rate, parents);
    }
    std::ranges::sort(children, std::greater{});
    const double with = ms + costs.draft_ms(static_cast<int>(parents));
    std::vector<double> level;
    double more = tokens;
    bool has_all = false;
    for (int after = left - 1; after >= 0 && level.size() < children.size() && with < INFINITY;
         --after) {
      const auto [probability, parent] = children[level.size()];
      level.push_back(probability);
      more += probability;
      has_all = has_all || parent == parents;
      if (!has_all) continue;
      least = std::min(
          least, least_of_all_widths(level, depth + 1, with, more, after, rates, costs, nodes));
    }
  }
  return least;
}

// A choice that never goes back on a width is slower in some of these.
TEST(FastestTree, NoWidthsAreFaster) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    const ChildRates rates = random.rates(round % 4 + 1, true);
    const TreeCosts costs{random_times(random, std::pow(10, random.uniform(-3, 0)), .6),
                          random_times(random, 1)};
    constexpr int kNodes = 11;
    const double least = least_of_all_widths({1.0}, 0, 0, 1, kNodes, rates, costs, kNodes);
    EXPECT_NEAR(fastest_tree(rates, costs, {kNodes}).round.ms_per_token(), least, 1e-9 * least)
        << "seed 5, round " << round;
  }
}

TEST(FastestTree, ARoundIsItsPasses) {
  const TreeCosts costs{[](int rows) { return rows == 1 ? 1.0 : 10.0 * rows; },
                        [](int rows) { return 100.0 * rows; }};
  const DraftTree tree({-1, -1, -1, 0, 1, 3});
  const RoundForecast round = predicted_round(tree, {{{.5}}}, costs);
  EXPECT_DOUBLE_EQ(round.ms, 1 + 20 + 1 + 700);
  EXPECT_DOUBLE_EQ(round.tokens, 1 + .5 + .25 + .125);
}

TEST(FastestTree, IsAChainWhereRowsCost) {
  const TreeCosts costs{[](int /*rows*/) { return 0.02; }, [](int rows) { return 1 + .3 * rows; }};
  const TimedTree found = fastest_tree(published_rates(), costs, {});
  EXPECT_EQ(found.tree.max_children(), 1);
  double least = INFINITY;
  for (int n = 1; n <= kMaxTreeDepth; ++n) {
    least = std::min(least,
                     predicted_round(DraftTree::chain(n), published_rates(), costs).ms_per_token());
  }
  EXPECT_NEAR(found.round.ms_per_token(), least, 1e-12);
}

TEST(FastestTree, IsWideAndShallowWhereDraftingCosts) {
  const ChildRates rates{{{.5, .2, .1, .05}}};
  const auto verify = [](int rows) { return 1 + .001 * rows; };
  const auto depth = [&](double draft_ms) {
    return fastest_tree(rates, {[=](int /*rows*/) { return draft_ms; }, verify}, {}).tree.depth();
  };
  const TimedTree shallow = fastest_tree(rates, {[](int /*rows*/) { return 2.0; }, verify}, {});
  EXPECT_EQ(shallow.tree, DraftTree({-1, -1, -1, -1}));
  EXPECT_GT(depth(.05), depth(.5));
  EXPECT_GT(depth(.5), 1);
}

TEST(FastestTree, HasNoPassThatIsNotPossible) {
  const TreeCosts costs{[](int rows) { return rows <= 4 ? .01 : INFINITY; },
                        [](int rows) { return rows <= 30 ? 1 : INFINITY; }};
  const DraftTree tree = fastest_tree({{{.5, .2, .1, .05}}}, costs, {}).tree;
  EXPECT_LE(tree.nodes(), 29);
  EXPECT_GT(tree.nodes(), 20);
  for (int d = 0; d + 1 < tree.depth(); ++d) EXPECT_LE(tree.parents_at(d), 4);
}

// The trees of most tokens and chains are among those that it is the best of.
TEST(FastestTree, IsAtLeastAsFastAsTreesOfMostTokens) {
  Random random(4);
  const BestTrees best(published_rates(), {kMaxProposals});
  for (int round = 0; round < 10; ++round) {
    const TreeCosts costs{random_times(random, std::pow(10, random.uniform(-3, 0))),
                          random_times(random, 1)};
    const TimedTree found = fastest_tree(published_rates(), costs, {});
    EXPECT_LE(found.tree.nodes(), kMaxProposals);
    const auto at_least_as_fast_as = [&](const DraftTree& tree) {
      const double ms = predicted_round(tree, published_rates(), costs).ms_per_token();
      EXPECT_LE(found.round.ms_per_token(), ms * (1 + 1e-9)) << "seed 4, round " << round;
    };
    for (int n = 1; n <= kMaxProposals; ++n) at_least_as_fast_as(best.tree(n));
    for (int n = 1; n <= kMaxTreeDepth; ++n) at_least_as_fast_as(DraftTree::chain(n));
  }
}

}  // namespace
}  // namespace triforce
