// A drafter without a past: --draft-cache window.
#pragma once
#include <vector>

#include "decode/fed_tokens.h"

namespace triforce {

// f32 logits [1, V] after the last of `tokens`, read by passes of at most the model's rows into a
// cache that is empty before, at positions from 0. The cache holds them until it is reset. Throws
// as LlamaModel::forward().
TensorView read_anew(LlamaModel& model, KvCache& cache, std::span<const Token> tokens);

// A model that reads the last `window` tokens of a lane anew for each distribution.
class WindowScorer final : public Scorer {
 public:
  // All outlive the scorer. Caches have room for `window` tokens and serve nothing else while this
  // one does, and nothing observes their passes; sequences have at most max_tokens.
  WindowScorer(Backend& backend, LlamaModel& model, std::span<const LaneCache> lanes,
               std::int64_t window, std::int64_t max_tokens, const SamplingParams& sampling,
               PhaseTimer& timer, Phase pass_phase);
  // The lane's sequence is `prefix` from now on.
  void start(int lane, std::span<const Token> prefix);
  int lanes() const override { return static_cast<int>(lanes_.size()); }
  std::int64_t length(int lane) const override { return lane_at(lane).tokens.length(); }
  // One lane after the other: what they read is long, and no pass for single tokens.
  void feed(std::span<const LaneFeed> feeds) override;
  // Those of any sequence from here on: what is read depends on its length alone.
  void record_passes(std::int64_t tokens, std::int64_t probs, std::int64_t tree_tokens) override;
  void truncate(int lane, std::int64_t length) override { lane_at(lane).tokens.truncate(length); }
  void keep(int lane, std::int64_t length, std::span<const std::int16_t> path) override {
    lane_at(lane).tokens.keep(length, path);
  }
  void commit(int /*lane*/, std::int64_t /*length*/) override {}
  std::int64_t vocab() const override { return model_.config().vocab; }

 private:
  struct Lane {
    KvCache* cache = nullptr;
    FedTokens tokens;
  };
  Lane& lane_at(int lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  const Lane& lane_at(int lane) const { return lanes_[static_cast<std::size_t>(lane)]; }

  Backend& backend_;
  LlamaModel& model_;
  std::vector<Lane> lanes_;
  std::size_t window_, max_tokens_;
  SamplingParams sampling_;
  PhaseTimer& timer_;
  Phase pass_phase_;
};

}  // namespace triforce
