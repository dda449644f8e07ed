// The draft trees of most expected tokens, by measured acceptances of children.
#pragma once
#include <cstdint>
#include <vector>

#include "triforce/acceptance_vector.h"
#include "triforce/draft_tree.h"

namespace triforce {

// Expected tokens of one verification. One is drawn after what was accepted, and a node adds the
// product of the rates along its path, the probability that it is accepted (Sequoia, arXiv
// 2402.12374, section 4).
double tokens_per_verification(const DraftTree& tree, const ChildRates& rates);

// The root is none of the nodes and on no level.
struct TreeLimits {
  int nodes = kMaxTreeNodes;     // in [1, kMaxTreeNodes]
  int depth = kMaxTreeDepth;     // levels, in [1, kMaxTreeDepth]
  int children = kMaxTreeNodes;  // of a node, >= 1
};

// The trees of most expected tokens within the limits, for every number of nodes up to that of the
// limits. They are found by Sequoia's dynamic program over depth, rank and nodes, whose sizes and
// depths count the root there. Rates may differ by depth and may rise with the rank. It takes
// depth * ranks * nodes^2 / 2 steps, and a number of two bytes for each depth, rank and node.
class BestTrees {
 public:
  // Throws Error(kBadInput, "InvalidAcceptanceVector") if a first child of the root has a rate of
  // 0.
  BestTrees(const ChildRates& rates, const TreeLimits& limits);

  // Of the best tree of at most so many nodes, in [1, limits.nodes]. It has fewer if more bring
  // nothing.
  double tokens(int nodes) const;
  DraftTree tree(int nodes) const;

 private:
  TreeLimits limits_;
  std::vector<double> tokens_;  // [nodes]
  // [depth][rank][nodes]: of so many nodes for the children from this rank on, those of the first
  // child's subtree; 0: there is no child.
  std::vector<std::vector<std::vector<std::int16_t>>> subtrees_;
};

}  // namespace triforce
