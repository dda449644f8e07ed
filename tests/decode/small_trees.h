// Every tree of some number of nodes, by plain recursion, and rates to compare them by.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "triforce/best_tree.h"

namespace triforce {

// In the order of DraftTree, parents never fall.
inline void add_trees(std::vector<std::int16_t>& parents, int nodes, std::vector<DraftTree>& out) {
  if (std::ssize(parents) == nodes) {
    out.emplace_back(parents);
    return;
  }
  const int from = parents.empty() ? DraftTree::kRoot : parents.back();
  const int to = static_cast<int>(parents.size());
  for (int p = from; p < to; ++p) {
    parents.push_back(static_cast<std::int16_t>(p));
    add_trees(parents, nodes, out);
    parents.pop_back();
  }
}

// All trees of 1 to `nodes` nodes.
inline std::vector<DraftTree> trees_up_to(int nodes) {
  std::vector<DraftTree> out;
  std::vector<std::int16_t> parents;
  for (int n = 1; n <= nodes; ++n) add_trees(parents, n, out);
  return out;
}

// An acceptance vector that Sequoia (arXiv 2402.12374) was published with.
inline const ChildRates& published_rates() {
  static const ChildRates rates{
      {{.91692, .04625, .01472, .00694, .00490, .00258, .00236, .00158, .00081}}};
  return rates;
}

class Random {
 public:
  explicit Random(unsigned seed) : random_(seed) {}
  double uniform(double from = 0, double to = 1) {
    return std::uniform_real_distribution<double>(from, to)(random_);
  }
  int integer(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_); }
  // Rates of up to four ranks, their sum below 1.
  ChildRates rates(int depths, bool falling) {
    ChildRates rates;
    for (int d = 0; d < depths; ++d) {
      std::vector<double> row(static_cast<std::size_t>(integer(1, 4)));
      double left = 1;
      for (double& rate : row) left -= rate = left * uniform();
      if (falling) std::ranges::sort(row, std::greater{});
      rates.by_depth.push_back(row);
    }
    return rates;
  }

 private:
  std::mt19937 random_;
};

inline bool within(const DraftTree& tree, const TreeLimits& limits) {
  return tree.nodes() <= limits.nodes && tree.depth() <= limits.depth &&
         tree.max_children() <= limits.children;
}

}  // namespace triforce
