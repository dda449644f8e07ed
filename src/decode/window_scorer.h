// A drafter without a past: --draft-cache window.
#pragma once
#include <vector>

#include "triforce/speculate.h"

namespace triforce {

// f32 logits [1, V] after the last of `tokens`, read by passes of at most the model's rows into a
// cache that is empty before, at positions from 0. The cache holds them until it is reset. Throws
// as LlamaModel::forward().
TensorView read_anew(LlamaModel& model, KvCache& cache, std::span<const Token> tokens);

// A model that reads the last `window` tokens anew for each distribution.
class WindowScorer final : public Scorer {
 public:
  // All outlive the scorer. `cache` has room for `window` tokens and serves nothing else while this
  // one does; sequences have at most max_tokens.
  WindowScorer(Backend& backend, LlamaModel& model, KvCache& cache, std::int64_t window,
               std::int64_t max_tokens, const SamplingParams& sampling, PhaseTimer& timer,
               Phase pass_phase);
  // The sequence is `prefix` from now on.
  void start(std::span<const Token> prefix);
  std::int64_t length() const override { return static_cast<std::int64_t>(tokens_.size()); }
  void feed(std::span<const Token> tokens, TensorView probs) override;
  // Those of any sequence from here on: what is read depends on its length alone.
  void record_passes(std::span<const Token> tokens, std::int64_t probs) override;
  void truncate(std::int64_t length) override;
  void commit(std::int64_t /*length*/) override {}
  std::int64_t vocab() const override { return model_.config().vocab; }

 private:
  Backend& backend_;
  LlamaModel& model_;
  KvCache& cache_;
  std::size_t window_, max_tokens_;
  SamplingParams sampling_;
  PhaseTimer& timer_;
  Phase pass_phase_;
  std::vector<Token> tokens_;
};

}  // namespace triforce
