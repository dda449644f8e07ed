#include "triforce/best_tree.h"

#include <algorithm>
#include <utility>

#include "triforce/decode.h"
#include "triforce/error.h"

namespace triforce {

static_assert(kMaxTreeDepth == kMaxGamma && kMaxTreeNodes >= kMaxProposals);

double tokens_per_verification(const DraftTree& tree, const ChildRates& rates) {
  std::vector<double> reached;
  double tokens = 1;
  for (int i = 0; i < tree.nodes(); ++i) {
    const int parent = tree.parent(i);
    const double before =
        parent == DraftTree::kRoot ? 1 : reached[static_cast<std::size_t>(parent)];
    reached.push_back(before * rates.at(tree.depth_of(i), tree.rank(i)));
    tokens += reached.back();
  }
  return tokens;
}

BestTrees::BestTrees(const ChildRates& rates, const TreeLimits& limits)
    : limits_(limits), subtrees_(static_cast<std::size_t>(limits.depth)) {
  TF_CHECK(limits.nodes >= 1 && limits.nodes <= kMaxTreeNodes && limits.depth >= 1 &&
           limits.depth <= kMaxTreeDepth && limits.children >= 1);
  const double first = rates.at(0, 0);
  if (!(first > 0)) {
    throw_input("InvalidAcceptanceVector",
                "acceptance vector: expected first children that were accepted, found a rate of {}",
                first);
  }
  const auto sizes = static_cast<std::size_t>(limits.nodes) + 1;
  // Most expected tokens of so many nodes below a node of some depth.
  std::vector<double> below(sizes, 0.0);
  for (int d = limits.depth - 1; d >= 0; --d) {
    auto& taken = subtrees_[static_cast<std::size_t>(d)];
    taken.resize(std::min({static_cast<std::size_t>(limits.children), rates.at(d).size(), sizes}));
    std::vector<double> later(sizes, 0.0);  // of children from the next rank on
    for (std::size_t rank = taken.size(); rank-- > 0;) {
      const double rate = rates.at(d)[rank];
      std::vector<double> best(sizes, 0.0);
      taken[rank].resize(sizes);
      for (std::size_t n = 1; n < sizes; ++n) {
        for (std::size_t with = 1; with <= n; ++with) {
          const double tokens = rate * (1 + below[with - 1]) + later[n - with];
          if (tokens <= best[n]) continue;
          best[n] = tokens;
          taken[rank][n] = static_cast<std::int16_t>(with);
        }
      }
      later = std::move(best);
    }
    below = std::move(later);
  }
  tokens_ = std::move(below);
  for (double& tokens : tokens_) tokens += 1;
}

double BestTrees::tokens(int nodes) const {
  TF_CHECK(nodes >= 1 && nodes <= limits_.nodes, "{}", nodes);
  return tokens_[static_cast<std::size_t>(nodes)];
}

DraftTree BestTrees::tree(int nodes) const {
  TF_CHECK(nodes >= 1 && nodes <= limits_.nodes, "{}", nodes);
  struct Subtree {
    int node, depth_below;
    std::int16_t nodes_below;
  };
  std::vector<std::int16_t> parents;
  std::vector<Subtree> subtrees = {{DraftTree::kRoot, 0, static_cast<std::int16_t>(nodes)}};
  for (std::size_t i = 0; i < subtrees.size(); ++i) {
    Subtree at = subtrees[i];
    if (at.depth_below == limits_.depth) break;
    for (const auto& taken : subtrees_[static_cast<std::size_t>(at.depth_below)]) {
      const std::int16_t with = taken[static_cast<std::size_t>(at.nodes_below)];
      if (with == 0) break;
      subtrees.push_back({static_cast<int>(parents.size()), at.depth_below + 1,
                          static_cast<std::int16_t>(with - 1)});
      parents.push_back(static_cast<std::int16_t>(at.node));
      at.nodes_below = static_cast<std::int16_t>(at.nodes_below - with);
    }
  }
  return DraftTree(std::move(parents));
}

}  // namespace triforce
