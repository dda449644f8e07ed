// The draft tree of least time per token, by measured acceptances of children and times of passes.
#pragma once
#include <functional>

#include "triforce/best_tree.h"
#include "triforce/predict.h"

namespace triforce {

// Times of single passes by their rows, >= 1, in ms. Infinite: no pass has so many.
struct TreeCosts {
  // The proposer's pass over the root, or over the nodes of a level that have children.
  std::function<double(int rows)> draft_ms;
  std::function<double(int rows)> verify_ms;  // the verifier's pass over all nodes and the root
};

// A round with this tree has a pass of the proposer over the root and over the parents of each
// level below it, and one verification.
RoundForecast predicted_round(const DraftTree& tree, const ChildRates& rates,
                              const TreeCosts& costs);

struct TimedTree {
  DraftTree tree;
  RoundForecast round;
};
// The tree of least predicted time per token within the limits and of at most kMaxProposals nodes
// (the hardware-aware choice of Sequoia, arXiv 2402.12374, section 4, over all trees). It is exact
// where no rate rises with the rank and no pass takes longer than one of more rows. Elsewhere each
// level takes the children that are best for that level alone. A tree of several nodes has none
// that is never accepted. A round of one node must have a finite time. The caller sees whether the
// tree is better than none.
TimedTree fastest_tree(const ChildRates& rates, const TreeCosts& costs, const TreeLimits& limits);

}  // namespace triforce
