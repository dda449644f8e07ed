// When the retrieval cache selects again.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "triforce/kv_cache.h"

namespace triforce {

class RebuildTrigger {
 public:
  // Rounds whose acceptance the adaptive policy looks at.
  static constexpr int kAdaptiveRounds = 8;

  explicit RebuildTrigger(const RebuildPolicy& policy) : policy_(policy) {}

  // A selection covers everything committed.
  void selected() {
    tokens_ = 0;
    rounds_ = 0;
    due_ = false;
  }
  void restart() {
    selected();
    largest_commit_ = 0;
  }
  // `recent` tokens since the selection are present now, of at most `capacity`.
  void committed(std::int64_t tokens, std::int64_t recent, std::int64_t capacity) {
    tokens_ += tokens;
    largest_commit_ = std::max(largest_commit_, tokens);
    if (policy_.kind == RebuildPolicy::Kind::kEvery && tokens_ >= policy_.every_tokens) due_ = true;
    if (recent + largest_commit_ > capacity) due_ = true;
  }
  void round(std::int64_t accepted, std::int64_t tested) {
    if (policy_.kind != RebuildPolicy::Kind::kAdaptive) return;
    window_[static_cast<std::size_t>(rounds_++ % kAdaptiveRounds)] = {accepted, tested};
    if (rounds_ < kAdaptiveRounds) return;
    Round sum;
    for (const Round& r : window_) {
      sum.accepted += r.accepted;
      sum.tested += r.tested;
    }
    if (static_cast<double>(sum.accepted) < policy_.below_rate * static_cast<double>(sum.tested)) {
      due_ = true;
    }
  }
  bool due() const { return due_; }

 private:
  struct Round {
    std::int64_t accepted = 0, tested = 0;
  };
  RebuildPolicy policy_;
  std::int64_t tokens_ = 0;          // committed since the selection
  std::int64_t largest_commit_ = 0;  // what one round may bring
  std::int64_t rounds_ = 0;
  std::array<Round, kAdaptiveRounds> window_{};
  bool due_ = false;
};

}  // namespace triforce
