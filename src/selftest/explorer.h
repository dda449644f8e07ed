// Every outcome of chance, one after another.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "triforce/error.h"
#include "triforce/random.h"
#include "triforce/tensor.h"

namespace triforce {

// Stands where PhiloxRng does (sampling.h). Follows a script of choices and takes the first open
// branch behind its end, multiplying up the probability of the path; advance() moves to the next
// path, depth first.
class Explorer {
 public:
  void restart() {
    next_ = 0;
    probability_ = 1;
  }
  bool advance() {
    while (!path_.empty() && path_.back().option + 1 >= path_.back().options) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().option;
    return true;
  }
  double probability() const { return probability_; }

  bool bernoulli(double probability, Purpose /*purpose*/, std::int64_t /*position*/,
                 std::uint32_t /*sibling*/) {
    if (probability >= 1.0) return true;
    if (probability <= 0.0) return false;
    const bool yes = choose(2) == 0;
    probability_ *= yes ? probability : 1.0 - probability;
    return yes;
  }
  template <class Weight>
  Token categorical(std::int64_t n, const Weight& weight, Purpose /*purpose*/,
                    std::int64_t /*position*/, std::uint32_t /*sibling*/) {
    double total = 0;
    std::array<Token, 8> ids{};
    std::size_t open = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double w = weight(i);
      total += w;
      if (w > 0) ids[open++] = static_cast<Token>(i);
    }
    const Token id = ids[choose(open)];
    probability_ *= weight(id) / total;
    return id;
  }
  DrawKey key() const { return {}; }

 private:
  struct Choice {
    std::size_t option, options;
  };
  std::size_t choose(std::size_t options) {
    if (next_ == path_.size()) path_.push_back({0, options});
    TF_CHECK(path_[next_].options == options, "the loop is not a function of its choices");
    return path_[next_++].option;
  }
  std::vector<Choice> path_;
  std::size_t next_ = 0;
  double probability_ = 1;
};

}  // namespace triforce
