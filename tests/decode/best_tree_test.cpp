#include "triforce/best_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <queue>

#include "decode/small_trees.h"
#include "triforce/error.h"
#include "triforce/format.h"

namespace triforce {
namespace {

// The same sum from the root down.
double tokens_from(const DraftTree& tree, int node, int depth, const ChildRates& rates) {
  double tokens = 1;
  const NodeRange children = tree.children(node);
  for (int r = 0; r < children.count; ++r) {
    tokens += rates.at(depth, r) * tokens_from(tree, children.first + r, depth + 1, rates);
  }
  return tokens;
}

TEST(TokensPerVerification, OfAChainIsTheGeometricSum) {
  for (const double a : {0.0, 0.4, 0.9}) {
    EXPECT_NEAR(tokens_per_verification(DraftTree::chain(6), {{{a}}}),
                (1 - std::pow(a, 7)) / (1 - a), 1e-12);
  }
}

TEST(TokensPerVerification, IsTheSumOverTheNodesOfTheirPaths) {
  const ChildRates rates{{{.5, .2}, {.4, .3, .1}}};
  const DraftTree tree({-1, -1, 0, 0, 0, 1, 5});
  EXPECT_NEAR(tokens_per_verification(tree, rates),
              1 + .5 + .2 + .5 * (.4 + .3 + .1) + .2 * .4 + .2 * .4 * .4, 1e-12);
  Random random(1);
  for (const DraftTree& t : trees_up_to(5)) {
    const ChildRates r = random.rates(3, false);
    EXPECT_NEAR(tokens_per_verification(t, r), tokens_from(t, DraftTree::kRoot, 0, r), 1e-12);
  }
}

TEST(BestTrees, NoTreeOfUpToSevenNodesHasMoreTokens) {
  const std::vector<DraftTree> trees = trees_up_to(7);
  EXPECT_EQ(trees.size(), 1U + 2 + 5 + 14 + 42 + 132 + 429);
  Random random(2);
  for (int round = 0; round < 100; ++round) {
    const ChildRates rates = random.rates(round % 3 + 1, round % 2 == 0);
    const TreeLimits limits{7, random.integer(1, 7), random.integer(1, 4)};
    const BestTrees best(rates, limits);
    std::vector<double> most(8, 0.0);
    for (const DraftTree& tree : trees) {
      if (!within(tree, limits)) continue;
      for (std::size_t n = static_cast<std::size_t>(tree.nodes()); n <= 7; ++n) {
        most[n] = std::max(most[n], tokens_per_verification(tree, rates));
      }
    }
    for (int n = 1; n <= 7; ++n) {
      SCOPED_TRACE(fmt::format("seed 2, round {}, {} nodes", round, n));
      EXPECT_NEAR(best.tokens(n), most[static_cast<std::size_t>(n)], 1e-12);
      const DraftTree tree = best.tree(n);
      EXPECT_TRUE(tree.nodes() <= n && within(tree, limits));
      EXPECT_NEAR(tokens_per_verification(tree, rates), best.tokens(n), 1e-12);
    }
  }
}

// Sequoia counts the root as a node and as a level: its trees of depth 24 have 23 levels here.
TEST(BestTrees, AreAsLargeAsPublished) {
  const BestTrees best(published_rates(), {1023, 23});
  const std::pair<int, double> published[] = {{64, 11.76},  {128, 12.92}, {256, 14.33},
                                              {384, 15.25}, {512, 15.79}, {1024, 16.88}};
  for (const auto& [size, tokens] : published) {
    EXPECT_NEAR(best.tokens(size - 1), tokens, 0.005) << size;
    const DraftTree tree = best.tree(size - 1);
    EXPECT_EQ(tree.nodes(), size - 1);
    EXPECT_EQ(tree.depth(), 23);
    EXPECT_NEAR(tokens_per_verification(tree, published_rates()), best.tokens(size - 1), 1e-9);
  }
  EXPECT_LT(tokens_per_verification(DraftTree::chain(63), published_rates()), 1 / (1 - .91692));
}

// Where no rate rises with the rank, they are the most probable nodes, found one by one.
TEST(BestTrees, AreTheMostProbableNodes) {
  const BestTrees best(published_rates(), {200, 63});
  const std::vector<double>& rates = published_rates().at(0);
  std::priority_queue<double> paths;  // of nodes whose parent is taken
  const auto offer = [&](double parent) {
    for (const double rate : rates) paths.push(parent * rate);
  };
  offer(1);
  double tokens = 1;
  for (int n = 1; n <= 200; ++n) {
    tokens += paths.top();
    const double taken = paths.top();
    paths.pop();
    offer(taken);
    EXPECT_NEAR(best.tokens(n), tokens, 1e-9) << n;
  }
}

TEST(BestTrees, OfNoAcceptedChildAreRefused) {
  const auto error = error_of(ExitCode::kBadInput, [] { BestTrees(ChildRates{{{0.0, .5}}}, {8}); });
  ASSERT_TRUE(error);
  EXPECT_STREQ(error->what(),
               "acceptance vector: expected first children that were accepted, found a rate of 0");
}

}  // namespace
}  // namespace triforce
