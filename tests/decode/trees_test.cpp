// Drafts that are trees: whatever their shape, what is verified is what the target draws alone.
#include <gtest/gtest.h>

#include "cpu/cpu_backend.h"
#include "decode/lanes.h"
#include "triforce/plan.h"

namespace triforce {
namespace {

constexpr std::int64_t kVocab = 61;

class Trees : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = make_cpu_backend({2, std::nullopt});
};

// Thirty trees, at the outer level, at the inner one, and at both.
TEST_F(Trees, StreamsAreThoseOfTheTargetAlone) {
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  std::mt19937 random(9);
  std::int64_t accepted = 0;
  for (unsigned i = 0; i < 30; ++i) {
    SpeculationOptions o = toy_options();
    o.acceptance = i % 3 == 0 ? Acceptance::kSpeculative : Acceptance::kCoupled;
    o.sampling = {i % 3 == 0 ? 0.0F : 1.0F, 1.0F, 0};
    if (i % 4 != 1) o.tree = random_tree(2 + static_cast<int>(random() % 40), i);
    if (i % 4 != 0) o.inner_tree = random_tree(2 + static_cast<int>(random() % 15), 100 + i);
    const std::vector<Method> methods = possible({.methods = all_methods()}, o).methods;
    const Method method = methods[i % methods.size()];
    ToyRun run(*backend_, pair, o, {100, 40, {method}});
    ASSERT_TRUE(run.prefill(toy_prompt(61 + static_cast<std::int64_t>(i), kVocab, i)));
    const RunMetrics found = run.generate(method, 24, i, 0);
    EXPECT_EQ(found.tokens, run.generate(kBaselineMethod, 24, i, 0).tokens)
        << fmt::format("{}, tree {}", to_string(method), i);
    for (const LevelCounters& l : found.levels) accepted += l.accepted;
  }
  EXPECT_GT(accepted, 50);
}

TEST_F(Trees, TheLargest) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  SpeculationOptions o = toy_options();
  o.sampling = {0.0F, 1.0F, 0};
  o.tree = random_tree(kMaxProposals, 4);
  o.inner_tree = random_tree(60, 5);
  ToyRun run(*backend_, pair, o, {100, 40, all_methods()});
  ASSERT_TRUE(run.prefill(toy_prompt(100, kVocab, 1)));
  expect_equal_streams(run_all(run, 40, 1, 0), "128 nodes");
}

// A tree without branches is asked for as a tree alone: its draft, and all that follows, is that of
// the chain of so many tokens.
TEST_F(Trees, HaveTheirFirstChildrenFromTheChain) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  SpeculationOptions chain = toy_options(), tree = chain;
  chain.gamma = 3;
  chain.acceptance = tree.acceptance = Acceptance::kCoupled;
  tree.tree = DraftTree({-1, -1, 0, 2});
  ToyRun a(*backend_, pair, chain, {100, 60, {Method::kDraft}}),
      b(*backend_, pair, tree, {100, 60, {Method::kDraft}});
  for (ToyRun* run : {&a, &b}) ASSERT_TRUE(run->prefill(toy_prompt(90, kVocab, 2)));
  const RunMetrics by_chain = a.generate(Method::kDraft, 60, 3, 0),
                   by_tree = b.generate(Method::kDraft, 60, 3, 0);
  EXPECT_EQ(by_chain.tokens, by_tree.tokens);
  const LevelCounters &l = by_chain.levels.front(), &t = by_tree.levels.front();
  EXPECT_LE(t.rounds, l.rounds);
  EXPECT_EQ(t.requested, 3 * t.rounds);
  EXPECT_EQ(t.drafted, 4 * t.rounds);
  // Of each round the children that were tested: one of two at first, then one of one.
  ASSERT_EQ(t.acceptance_vector->tested.size(), 3U);
  EXPECT_EQ(t.acceptance_vector->tested[0], std::vector<std::int64_t>(2, t.rounds));
  const std::vector<std::int64_t>& first = t.acceptance_vector->accepted[0];
  EXPECT_EQ(t.acceptance_vector->tested[1].front(), first[0]);
  EXPECT_EQ(t.accepted_at[0], first[0] + first[1]);
  EXPECT_GT(first[1], 0);
  EXPECT_EQ(t.emitted, t.accepted + t.rounds);
}

TEST_F(Trees, LanesGetWhatTheyGetAlone) {
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  SpeculationOptions o = toy_options();
  o.sampling = {0.6F, 1.0F, 0};
  o.tree = random_tree(30, 6);
  o.inner_tree = random_tree(5, 7);
  o.ignore_eos = false;
  RunShape shape{150, 40, all_methods()};
  shape.lanes = 3;
  expect_lanes_as_alone(*backend_, pair, o, shape, "trees");
  o.acceptance = Acceptance::kCoupled;
  o.draft_cache = DraftCache::kWindow;
  o.inner_tree.reset();
  shape.homes = {};
  expect_lanes_as_alone(*backend_, pair, o, shape, "a tree over a window");
}

// What is asked for may change between generations. Each is that of methods that were made for it.
TEST_F(Trees, ThatAreSetAreThoseThatWereGiven) {
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  SpeculationOptions o = toy_options();
  o.acceptance = Acceptance::kCoupled;
  o.inner_gamma = 2;
  SpeculationOptions largest = o;
  largest.tree = DraftTree::comb(12, 10);
  const RunShape shape{90, 40, all_methods()};
  ToyRun set(*backend_, pair, largest, shape);
  const std::vector<Token> prompt = toy_prompt(90, kVocab, 4);
  ASSERT_TRUE(set.prefill(prompt));
  for (const DraftTree& tree : {random_tree(30, 4), DraftTree::chain(5), DraftTree::comb(12, 10),
                                random_tree(7, 2), DraftTree::chain(12)}) {
    SpeculationOptions given = o;
    if (tree.is_chain()) {
      given.gamma = tree.nodes();
    } else {
      given.tree = tree;
    }
    ToyRun made(*backend_, pair, given, shape);
    ASSERT_TRUE(made.prefill(prompt));
    set.methods.set_tree(tree);
    for (const Method m : set.asked) {
      expect_equal_runs(set.generate(m, 40, 3, 0), made.generate(m, 40, 3, 0),
                        fmt::format("{}, {} nodes", to_string(m), tree.nodes()));
    }
  }
  set.methods.set_tree({});
  const RunMetrics none = set.generate(Method::kRetrieval, 10, 3, 0);
  EXPECT_EQ(none.levels.back().drafted, 0);
  EXPECT_EQ(none.tokens, set.generate(kBaselineMethod, 10, 3, 0).tokens);
}

TEST_F(Trees, OverHeadsInHostMemory) {
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  SpeculationOptions o = toy_options();
  o.sampling = {0.0F, 1.0F, 0};
  o.tree = random_tree(40, 8);
  for (const int host_split : {0, 1}) {
    RunShape shape{150, 40, all_methods()};
    shape.homes = spread_homes(2, 2, 1, host_split);
    ToyRun run(*backend_, pair, o, shape);
    ASSERT_TRUE(run.prefill(toy_prompt(150, kVocab, 3)));
    expect_equal_streams(run_all(run, 40, 5, 0), fmt::format("split {}", host_split));
  }
}

}  // namespace
}  // namespace triforce
