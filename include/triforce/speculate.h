// Speculative decoding as composition (arXiv 2404.11912, section 4): Speculate(proposer, verifier)
// is itself a proposer, so levels stack to any depth. Probabilities stay on the backend's device.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "triforce/backend.h"
#include "triforce/kv_cache.h"
#include "triforce/metrics.h"
#include "triforce/model.h"

namespace triforce {

// A model with a cache: probs of the next token for a growing, shrinking sequence.
class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual std::int64_t length() const = 0;  // tokens its cache holds
  // Appends tokens and writes the probs after each of the last probs.shape[0] of them.
  virtual void feed(std::span<const Token> tokens, TensorView probs) = 0;
  // Records the passes of feed(tokens, so many probs) that its backend records and has not yet
  // (LlamaModel::record_pass); length() stays.
  virtual void record_passes(std::span<const Token> tokens, std::int64_t probs) = 0;
  virtual void truncate(std::int64_t length) = 0;
  virtual void commit(std::int64_t length) = 0;
  virtual std::int64_t vocab() const = 0;
};

// Splits device time among phases. Recording is one event per change of phase.
class PhaseTimer {
 public:
  explicit PhaseTimer(Backend& backend) : backend_(backend) { marks_.reserve(kMaxMarks + 2); }
  void start();  // zeroes the totals; begins in kHostGap
  void stop();   // closes the last span
  const PhaseTimes& totals() const { return totals_; }

  // Enters a phase and returns to the one before when destroyed.
  class Scope {
   public:
    Scope(PhaseTimer& timer, Phase phase) : timer_(timer), before_(timer.current_) {
      timer_.enter(phase);
    }
    ~Scope() { timer_.enter(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseTimer& timer_;
    Phase before_;
  };

 private:
  static constexpr std::size_t kMaxMarks = 64;
  struct Mark {
    Event event;
    Phase phase;
  };
  void enter(Phase phase);
  void flush();

  Backend& backend_;
  std::vector<Mark> marks_;
  PhaseTimes totals_{};
  Phase current_ = Phase::kHostGap;
  bool running_ = false;
};

// LlamaModel over one KvCache. More tokens than the model gives logits of are several passes.
class ModelScorer : public Scorer {
 public:
  // All outlive the scorer; observer may be null.
  ModelScorer(Backend& backend, LlamaModel& model, KvCache& cache, LayerObserver* observer,
              const SamplingParams& sampling, PhaseTimer& timer, Phase pass_phase);
  std::int64_t length() const override { return cache_.length(); }
  void feed(std::span<const Token> tokens, TensorView probs) override;
  void record_passes(std::span<const Token> tokens, std::int64_t probs) override;
  void truncate(std::int64_t length) override { cache_.truncate(length); }
  void commit(std::int64_t length) override;
  std::int64_t vocab() const override { return model_.config().vocab; }

 private:
  // One pass over tokens [begin, begin + rows) of those that are fed; the last `probs` want probs.
  struct Part {
    std::int64_t begin = 0, rows = 0, probs = 0;
    Logits want() const {
      return probs == 0 ? Logits::kNone : probs == 1 ? Logits::kLast : Logits::kAll;
    }
    std::span<const Token> of(std::span<const Token> fed) const {
      return fed.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows));
    }
  };
  template <class Visit>
  void for_each_part(std::int64_t tokens, std::int64_t probs, const Visit& visit) const;

  Backend& backend_;
  LlamaModel& model_;
  KvCache& cache_;
  LayerObserver* observer_;
  SamplingParams sampling_;
  PhaseTimer& timer_;
  Phase pass_phase_;
};

// Keeps a Scorer's cache in step with a token sequence, feeding again only what does not match.
class Sequence {
 public:
  explicit Sequence(Scorer& scorer) : scorer_(scorer) {}
  // The scorer holds `prefix` final tokens; the sequence is those and `last`.
  void start(std::int64_t prefix, Token last);
  std::int64_t length() const { return base_ + static_cast<std::int64_t>(tokens_.size()); }
  void extend(std::span<const Token> tokens);
  void truncate(std::int64_t length);  // > the last commit
  void commit(std::int64_t length);
  // Probs after the last token of the sequence and after each of `guess`: guess.size() + 1 rows.
  void score(std::span<const Token> guess, TensorView probs);
  // The distribution after one more guessed token, following a score() or score_next().
  void score_next(Token guess, TensorView probs);
  // Records the passes of a score() of `guesses` tokens that feeds the newest `unfed` tokens of the
  // sequence with them.
  void record_score(int unfed, int guesses);

 private:
  void drop_stale();
  Scorer& scorer_;
  std::int64_t base_ = 0;      // tokens that are final in the scorer's cache
  std::vector<Token> tokens_;  // the sequence after base_
  std::vector<Token> fed_;     // what the cache holds after base_
  std::vector<Token> input_;
};

// Guessed tokens, the probs each was drawn from, and the level that produced each. Valid until the
// next call to the proposer.
struct Draft {
  std::span<const Token> tokens;
  std::span<const std::uint8_t> origins;
  TensorView probs;  // [tokens.size(), V]
};

// What names the random numbers of one generation and the sequence it starts from.
struct GenerationStart {
  std::uint64_t seed = 0;
  std::uint32_t prompt = 0;
  std::int64_t prefix = 0;  // tokens already final in every cache
  Token last = 0;           // the token after them, not fed yet
};

// A sequence that can grow, shrink back to the last commit, and guess ahead.
class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual void start(const GenerationStart& s) = 0;
  // At least n guesses (at most max_tokens(n)); does not change the sequence.
  virtual Draft propose(int n) = 0;
  virtual int max_tokens(int n) const = 0;
  // Records every pass that propose() can run (Scorer::record_passes), so that no round has to.
  // unfed: how many of the newest tokens its scorer may not have been fed when it is asked, at
  // most: the last one that it gave itself, and one of each level above. Once started.
  virtual void record_passes(int unfed) = 0;
  virtual std::int64_t length() const = 0;
  virtual void extend(std::span<const Token> tokens) = 0;
  virtual void truncate(std::int64_t length) = 0;
  virtual void commit(std::int64_t length) = 0;
  // Counters since start(), innermost first.
  virtual void append_counters(std::vector<LevelCounters>& out) const = 0;
  virtual std::uint32_t level() const = 0;
};

// Draws one token after another from its scorer's probs.
class ModelProposer final : public Proposer {
 public:
  // Never asked for more than max_request tokens at once.
  ModelProposer(Backend& backend, std::unique_ptr<Scorer> scorer, int max_request,
                Acceptance acceptance, PhaseTimer& timer);
  void start(const GenerationStart& s) override;
  Draft propose(int n) override;
  int max_tokens(int n) const override { return n; }
  void record_passes(int unfed) override;
  std::int64_t length() const override { return sequence_.length(); }
  void extend(std::span<const Token> tokens) override { sequence_.extend(tokens); }
  void truncate(std::int64_t length) override { sequence_.truncate(length); }
  void commit(std::int64_t length) override { sequence_.commit(length); }
  void append_counters(std::vector<LevelCounters>& out) const override;
  std::uint32_t level() const override { return 0; }

 private:
  Backend& backend_;
  std::unique_ptr<Scorer> scorer_;
  Sequence sequence_;
  Acceptance acceptance_;
  PhaseTimer& timer_;
  Tensor probs_;
  std::vector<Token> tokens_;
  std::vector<std::uint8_t> origins_;
  DrawKey key_;
};

// Lets `inner` guess and verifies with `verifier`: every token follows the verifier's distribution.
class SpeculativeProposer final : public Proposer {
 public:
  struct Options {
    int step = 6;         // tokens asked of the inner proposer per verification
    int max_request = 1;  // most tokens ever asked of this one at once
    VerifyRule rule;
    const char* name = "outer";
    // After every round: proposals accepted, proposals tested.
    std::function<void(std::int64_t accepted, std::int64_t tested)> on_round;
  };
  SpeculativeProposer(Backend& backend, std::unique_ptr<Proposer> inner,
                      std::unique_ptr<Scorer> verifier, Options options, PhaseTimer& timer);
  void start(const GenerationStart& s) override;
  Draft propose(int n) override;
  int max_tokens(int n) const override { return n + inner_->max_tokens(options_.step); }
  void record_passes(int unfed) override;
  std::int64_t length() const override { return sequence_.length(); }
  void extend(std::span<const Token> tokens) override;
  void truncate(std::int64_t length) override;
  void commit(std::int64_t length) override;
  void append_counters(std::vector<LevelCounters>& out) const override;
  std::uint32_t level() const override { return inner_->level() + 1; }
  // Changes the step for rounds to come; at most the one given at construction. With 0 the inner
  // proposer is not asked, and each round draws one token from the verifier's pass.
  void set_step(int step);
  int step() const { return options_.step; }

 private:
  Backend& backend_;
  std::unique_ptr<Proposer> inner_;
  std::unique_ptr<Scorer> verifier_;
  Sequence sequence_;
  Options options_;
  int max_step_;
  PhaseTimer& timer_;
  Tensor probs_;
  std::vector<Token> tokens_;
  std::vector<std::uint8_t> origins_;
  DrawKey key_;
  LevelCounters counters_;
};

}  // namespace triforce
