// The tree of least time per token. Of given numbers of nodes and of parents on each level, a tree
// has most tokens if the most probable nodes of a level are the parents, and their most probable
// children the next level: a level that is more probable node by node has children that are, too.
// So a tree is a list of such pairs, which branch and bound searches. The bound is a dynamic
// program over depth, nodes above and nodes. It takes the level above for the most probable nodes
// of its depth. Dinkelbach's method (Management Science 13(7), 1967) makes a ratio a sum: it looks
// for time - lambda * tokens < 0, where lambda is the ratio of the best tree so far.
#include "triforce/fastest_tree.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "triforce/backend.h"
#include "triforce/error.h"

namespace triforce {
namespace {

struct Child {
  double probability;  // that its path is accepted
  int parent, rank;    // parent: index in the level above
};
using Level = std::vector<Child>;  // most probable first

class Search {
 public:
  Search(const ChildRates& rates, const TreeCosts& costs, const TreeLimits& limits)
      : rates_(rates), limits_(limits), nodes_(std::min(limits.nodes, kMaxProposals)) {
    TF_CHECK(limits.nodes >= 1 && limits.depth >= 1 && limits.children >= 1);
    for (int rows = 1; rows <= nodes_ + 1; ++rows) {
      draft_ms_.push_back(costs.draft_ms(rows));
      verify_ms_.push_back(costs.verify_ms(rows));
    }
    add_gains();
    levels_.reserve(gains_.size());  // levels stay where they are
  }

  // The levels of a tree of least ms - lambda * tokens. Empty: it is below 0 for no tree.
  std::vector<Level> below(double lambda) {
    lambda_ = lambda;
    least_ = -kTolerance * lambda;
    best_.clear();
    set_bounds();
    extend(0, -lambda);
    return std::move(best_);
  }

 private:
  // Of lambda: what rounding may make of a difference of 0.
  static constexpr double kTolerance = 1e-11;

  // The most probable children of a level's nodes, whose depth is the children's - 1.
  Level children(std::span<const Child> above, int depth, int most) const {
    const auto later = [](const Child& a, const Child& b) {
      return std::pair(a.probability, b.parent) < std::pair(b.probability, a.parent);
    };
    std::priority_queue<Child, Level, decltype(later)> offers(later);
    const auto offer = [&](int parent, int rank) {
      const double p = above[static_cast<std::size_t>(parent)].probability * rates_.at(depth, rank);
      if (p > 0 && rank < limits_.children) offers.push({p, parent, rank});
    };
    for (int i = 0; i < std::ssize(above); ++i) offer(i, 0);
    Level taken;
    while (!offers.empty() && std::ssize(taken) < most) {
      taken.push_back(offers.top());
      offers.pop();
      offer(taken.back().parent, taken.back().rank + 1);
    }
    return taken;
  }
  void add_gains() {
    Level top = root_;  // the most probable nodes of the depth above
    for (int d = 0; d < std::min(limits_.depth, nodes_) && !top.empty(); ++d) {
      auto& gains = gains_.emplace_back();
      for (std::size_t w = 1; w <= top.size(); ++w) {
        const int used = d == 0 ? 0 : static_cast<int>(w) + d - 1;
        auto& sums = gains.emplace_back();
        double sum = 0;
        for (const Child& c : children(std::span(top).first(w), d, nodes_ - used)) {
          sums.push_back(sum += c.probability);
        }
      }
      top = children(top, d, nodes_ - d);
    }
  }
  // [nodes above - 1][children - 1]: what drafting so many children adds at least.
  std::vector<std::vector<double>> least_draft(std::size_t depth) const {
    std::vector<std::vector<double>> least;
    for (std::size_t parents = 1; parents <= gains_[depth].size(); ++parents) {
      const std::vector<double>& gains = gains_[depth][parents - 1];
      std::vector<double> of = least.empty() ? std::vector<double>() : least.back();
      of.resize(std::max(of.size(), gains.size()), std::numeric_limits<double>::infinity());
      for (std::size_t i = 0; i < gains.size(); ++i) {
        of[i] = std::min(of[i], draft_ms_[parents - 1] - lambda_ * gains[i]);
      }
      least.push_back(std::move(of));
    }
    return least;
  }
  void set_bounds() {
    const auto size = static_cast<std::size_t>(nodes_) + 1;
    bounds_.assign(gains_.size() + 1, std::vector<double>(size * size, 0.0));
    std::vector<std::vector<double>> draft;
    for (std::size_t d = gains_.size(); d >= 1; --d) {
      if (d < gains_.size()) draft = least_draft(d);
      for (std::size_t before = d - 1; before < size; ++before) {
        for (std::size_t w = 1; before + w < size; ++w) {
          const std::size_t used = before + w;
          double& least = bounds_[d][before * size + w];
          least = verify_ms_[used];
          if (w > draft.size()) continue;
          const double* after = &bounds_[d + 1][used * size + 1];
          for (std::size_t i = 0; i < std::min(draft[w - 1].size(), size - 1 - used); ++i) {
            least = std::min(least, draft[w - 1][i] + after[i]);
          }
        }
      }
    }
  }
  // Extends levels_, which have `used` nodes: `cost` is ms - lambda * tokens of its drafting.
  void extend(int used, double cost) {
    const std::size_t d = levels_.size();
    const Level& above = d == 0 ? root_ : levels_.back();
    const double whole = cost + verify_ms_[static_cast<std::size_t>(used)];
    if (d > 0 && whole < least_) {
      least_ = whole;
      best_ = levels_;
    }
    if (d == gains_.size()) return;
    struct Step {
      double bound, cost;
      int parents, width;
    };
    std::vector<Step> steps;
    const std::size_t at = static_cast<std::size_t>(used) * verify_ms_.size();
    const Level all = children(above, static_cast<int>(d), std::numeric_limits<int>::max());
    for (int parents = 1; parents <= std::ssize(above); ++parents) {
      double with = cost + draft_ms_[static_cast<std::size_t>(parents) - 1];
      int width = 0;
      bool has_all = false;  // each of the parents has a child
      for (const Child& child : all) {
        if (child.parent >= parents) continue;
        if (++width > nodes_ - used) break;
        with -= lambda_ * child.probability;
        has_all = has_all || child.parent == parents - 1;
        const double bound = with + bounds_[d + 1][at + static_cast<std::size_t>(width)];
        if (has_all && bound < least_) steps.push_back({bound, with, parents, width});
      }
    }
    std::ranges::sort(steps, {}, &Step::bound);
    for (const Step& step : steps) {
      if (!(step.bound < least_ - kTolerance * lambda_)) return;
      Level& next = levels_.emplace_back();
      for (auto child = all.begin(); std::ssize(next) < step.width; ++child) {
        if (child->parent < step.parents) next.push_back(*child);
      }
      extend(used + step.width, step.cost);
      levels_.pop_back();
    }
  }

  const ChildRates& rates_;
  const TreeLimits limits_;
  const int nodes_;
  const Level root_ = {{1.0, 0, 0}};
  std::vector<double> draft_ms_, verify_ms_;  // [rows - 1]
  // [depth][parents - 1][width - 1]: sums of probabilities below the most probable nodes.
  std::vector<std::vector<std::vector<double>>> gains_;
  double lambda_ = 0;
  // [depth][(nodes above the last level) * (nodes_ + 1) + its width]: what levels from this depth
  // on and the verification add at least, the last level being that of depth - 1.
  std::vector<std::vector<double>> bounds_;
  double least_ = 0;
  std::vector<Level> levels_, best_;
};

DraftTree tree_of(const std::vector<Level>& levels) {
  std::vector<std::int16_t> parents, above = {DraftTree::kRoot};
  for (const Level& level : levels) {
    const auto parent = [&](std::size_t i) {
      return above[static_cast<std::size_t>(level[i].parent)];
    };
    std::vector<std::size_t> order(level.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, parent);  // siblings are in the order of their ranks
    std::vector<std::int16_t> nodes(level.size());
    for (const std::size_t i : order) {
      nodes[i] = static_cast<std::int16_t>(parents.size());
      parents.push_back(parent(i));
    }
    above = std::move(nodes);
  }
  return DraftTree(std::move(parents));
}

}  // namespace

RoundForecast predicted_round(const DraftTree& tree, const ChildRates& rates,
                              const TreeCosts& costs) {
  double ms = costs.draft_ms(1);
  for (int d = 0; d + 1 < tree.depth(); ++d) ms += costs.draft_ms(tree.parents_at(d));
  return {ms + costs.verify_ms(tree.nodes() + 1), tokens_per_verification(tree, rates)};
}

TimedTree fastest_tree(const ChildRates& rates, const TreeCosts& costs, const TreeLimits& limits) {
  const auto timed = [&](DraftTree tree) {
    const RoundForecast round = predicted_round(tree, rates, costs);
    return TimedTree{std::move(tree), round};
  };
  Search search(rates, costs, limits);
  TimedTree best = timed(DraftTree::chain(1));
  for (;;) {
    const std::vector<Level> levels = search.below(best.round.ms_per_token());
    if (levels.empty()) return best;
    best = timed(tree_of(levels));
  }
}

}  // namespace triforce
