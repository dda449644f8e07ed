// Speculative decoding as composition (arXiv 2404.11912, section 4): Speculate(proposer, verifier)
// is itself a proposer, so levels stack to any depth. Probabilities stay on the backend's device.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "triforce/backend.h"
#include "triforce/kv_cache.h"
#include "triforce/metrics.h"
#include "triforce/model.h"

namespace triforce {

// What a lane is fed: tokens, and where the probs after the last probs.shape[0] of them are
// written.
struct LaneFeed {
  int lane = 0;
  std::span<const Token> tokens;
  TensorView probs;  // [1..tokens.size(), V] f32
};

// A model with a cache for each of some sequences, the lanes: probs of the next token for each
// while it grows and shrinks.
class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual int lanes() const = 0;
  virtual std::int64_t length(int lane) const = 0;  // tokens its cache holds
  // Appends the tokens of these lanes, in rising order, and writes their probs. A lane gets the
  // same bits whatever others are fed.
  virtual void feed(std::span<const LaneFeed> feeds) = 0;
  // Records the passes of a feed() of up to so many tokens and so many probs of each lane, as far
  // as its backend records them and has not yet (LlamaModel::record_pass); lengths stay.
  virtual void record_passes(std::int64_t tokens, std::int64_t probs) = 0;
  virtual void truncate(int lane, std::int64_t length) = 0;
  virtual void commit(int lane, std::int64_t length) = 0;
  virtual std::int64_t vocab() const = 0;
};

// Splits device time among phases. Recording is one event per change of phase.
class PhaseTimer {
 public:
  explicit PhaseTimer(Backend& backend) : backend_(backend) { marks_.reserve(kMaxMarks + 2); }
  void start();  // zeroes the totals; begins in kHostGap
  void stop();   // closes the last span
  // Up to now, or to where it stopped. Blocks until that has happened.
  const PhaseTimes& totals();

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

// The cache of a lane, and what sees its passes.
struct LaneCache {
  KvCache* cache = nullptr;
  LayerObserver* observer = nullptr;  // null: nothing
};

// LlamaModel over a KvCache for each lane, which are alike. Lanes are fed in one pass; what a pass
// has no room for is fed in further ones: first of other lanes, then of further tokens.
class ModelScorer : public Scorer {
 public:
  // All outlive the scorer.
  ModelScorer(Backend& backend, LlamaModel& model, std::vector<LaneCache> lanes,
              const SamplingParams& sampling, PhaseTimer& timer, Phase pass_phase);
  int lanes() const override { return static_cast<int>(lanes_.size()); }
  std::int64_t length(int lane) const override { return cache(lane).length(); }
  void feed(std::span<const LaneFeed> feeds) override;
  void record_passes(std::int64_t tokens, std::int64_t probs) override;
  void truncate(int lane, std::int64_t length) override { cache(lane).truncate(length); }
  void commit(int lane, std::int64_t length) override;
  std::int64_t vocab() const override { return model_.config().vocab; }

 private:
  KvCache& cache(int lane) const { return *lanes_[static_cast<std::size_t>(lane)].cache; }

  Backend& backend_;
  LlamaModel& model_;
  std::vector<LaneCache> lanes_;
  std::vector<LaneFeed> of_lanes_;  // of the feed() in progress
  std::vector<PassPart> parts_;     // of the pass in progress
  SamplingParams sampling_;
  PhaseTimer& timer_;
  Phase pass_phase_;
};

// Keeps a lane of a scorer in step with a token sequence; what does not match is fed again.
class Sequence {
 public:
  Sequence(Scorer& scorer, int lane) : scorer_(&scorer), lane_(lane) {}
  // The scorer holds `prefix` final tokens; the sequence is those and `last`.
  void start(std::int64_t prefix, Token last);
  std::int64_t length() const { return base_ + static_cast<std::int64_t>(tokens_.size()); }
  void extend(std::span<const Token> tokens);
  void truncate(std::int64_t length);  // > the last commit
  void commit(std::int64_t length);
  // What the scorer is to be fed next, for the probs after the last token of the sequence and after
  // each of `guess`: guess.size() + 1 rows. Valid until the next call.
  LaneFeed score(std::span<const Token> guess, TensorView probs);
  // The same for one more guessed token, after a score() or score_next(): one row.
  LaneFeed score_next(Token guess, TensorView probs);

 private:
  void drop_stale();
  Scorer* scorer_;
  int lane_;
  std::int64_t base_ = 0;      // tokens that are final in the scorer's cache
  std::vector<Token> tokens_;  // the sequence after base_
  std::vector<Token> fed_;     // what the cache holds after base_
  std::vector<Token> input_;
};

// Guessed tokens of a lane, the probs each was drawn from, and the level that produced each. Valid
// until the next call to the proposer.
struct Draft {
  std::span<const Token> tokens;
  std::span<const std::uint8_t> origins;
  TensorView probs;  // [tokens.size(), V]
  // Where probs that were needed are not finite; the lane is at its end, and is to be asked for
  // nothing else. Empty: nowhere.
  std::optional<std::int64_t> failed_at;
};

// What names the random numbers of one generation and the sequence it starts from.
struct GenerationStart {
  std::uint64_t seed = 0;
  std::uint32_t prompt = 0;
  std::int64_t prefix = 0;  // tokens already final in every cache
  Token last = 0;           // the token after them, not fed yet
};

// Sequences, one a lane, that can grow, shrink back to the last commit, and guess ahead. Lanes go
// on together: what all need is one pass. None changes what another one gets.
class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual int lanes() const = 0;
  virtual void start(std::span<const GenerationStart> lanes) = 0;  // of every lane
  // At least n guesses for each of these lanes, in rising order, but for those that fail; at most
  // max_tokens(n). Sequences stay. Returns the drafts in the order of `lanes`.
  virtual std::span<const Draft> propose(std::span<const int> lanes, int n) = 0;
  virtual int max_tokens(int n) const = 0;
  // Records every pass that propose() can run (Scorer::record_passes), so that no round has to.
  // unfed: how many of the newest tokens its scorer may not have been fed when it is asked, at
  // most: the last one that it gave itself, and one of each level above. Once started.
  virtual void record_passes(int unfed) = 0;
  virtual std::int64_t length(int lane) const = 0;
  virtual void extend(int lane, std::span<const Token> tokens) = 0;
  virtual void truncate(int lane, std::int64_t length) = 0;
  virtual void commit(int lane, std::int64_t length) = 0;
  // Counters of a lane since start(), innermost first.
  virtual void append_counters(int lane, std::vector<LevelCounters>& out) const = 0;
  virtual std::uint32_t level() const = 0;
};

// Draws one token after another from its scorer's probs.
class ModelProposer final : public Proposer {
 public:
  // Never asked for more than max_request tokens at once.
  ModelProposer(Backend& backend, std::unique_ptr<Scorer> scorer, int max_request,
                Acceptance acceptance, PhaseTimer& timer);
  int lanes() const override { return scorer_->lanes(); }
  void start(std::span<const GenerationStart> lanes) override;
  std::span<const Draft> propose(std::span<const int> lanes, int n) override;
  int max_tokens(int n) const override { return n; }
  void record_passes(int unfed) override;
  std::int64_t length(int lane) const override { return lane_at(lane).sequence.length(); }
  void extend(int lane, std::span<const Token> tokens) override {
    lane_at(lane).sequence.extend(tokens);
  }
  void truncate(int lane, std::int64_t length) override { lane_at(lane).sequence.truncate(length); }
  void commit(int lane, std::int64_t length) override { lane_at(lane).sequence.commit(length); }
  void append_counters(int lane, std::vector<LevelCounters>& out) const override;
  std::uint32_t level() const override { return 0; }

 private:
  struct Lane {
    Sequence sequence;
    TensorView probs;  // [max_request, V]
    std::vector<Token> tokens;
    DrawKey key;
    std::optional<std::int64_t> failed_at;
  };
  Lane& lane_at(int lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  const Lane& lane_at(int lane) const { return lanes_[static_cast<std::size_t>(lane)]; }
  void draw(int i);

  Backend& backend_;
  std::unique_ptr<Scorer> scorer_;
  Acceptance acceptance_;
  PhaseTimer& timer_;
  Tensor probs_;
  std::vector<std::uint8_t> origins_;
  std::vector<Lane> lanes_;
  std::vector<LaneFeed> feeds_;
  std::vector<SampleRequest> requests_;
  std::vector<Token> drawn_;
  std::vector<Draft> drafts_;
};

// Lets `inner` guess and verifies with `verifier`: every token follows the verifier's distribution.
class SpeculativeProposer final : public Proposer {
 public:
  struct Options {
    int step = 6;         // tokens asked of the inner proposer per verification
    int max_request = 1;  // most tokens ever asked of this one at once
    VerifyRule rule;
    const char* name = "outer";
    // After every round of a lane: proposals accepted, proposals tested.
    std::function<void(int lane, std::int64_t accepted, std::int64_t tested)> on_round;
  };
  SpeculativeProposer(Backend& backend, std::unique_ptr<Proposer> inner,
                      std::unique_ptr<Scorer> verifier, Options options, PhaseTimer& timer);
  int lanes() const override { return inner_->lanes(); }
  void start(std::span<const GenerationStart> lanes) override;
  // Rounds of all lanes that have too few tokens, until none has.
  std::span<const Draft> propose(std::span<const int> lanes, int n) override;
  int max_tokens(int n) const override { return n + inner_->max_tokens(options_.step); }
  void record_passes(int unfed) override;
  std::int64_t length(int lane) const override { return lane_at(lane).sequence.length(); }
  void extend(int lane, std::span<const Token> tokens) override;
  void truncate(int lane, std::int64_t length) override;
  void commit(int lane, std::int64_t length) override;
  void append_counters(int lane, std::vector<LevelCounters>& out) const override;
  std::uint32_t level() const override { return inner_->level() + 1; }
  // Changes the step for rounds to come; at most the one given at construction. With 0 the inner
  // proposer is not asked, and each round draws one token from the verifier's pass.
  void set_step(int step);
  int step() const { return options_.step; }

 private:
  struct Lane {
    Sequence sequence;
    TensorView probs;  // [max_tokens(max_request), V]
    std::vector<Token> tokens;
    std::vector<std::uint8_t> origins;
    DrawKey key;
    LevelCounters counters;
    std::int64_t base = 0;  // length of the sequence when propose() began
    std::optional<std::int64_t> failed_at;
  };
  Lane& lane_at(int lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  const Lane& lane_at(int lane) const { return lanes_[static_cast<std::size_t>(lane)]; }
  void round(std::span<const int> lanes);
  void keep(int lane, const Draft& draft, const VerifyResult& verified);

  Backend& backend_;
  std::unique_ptr<Proposer> inner_;
  std::unique_ptr<Scorer> verifier_;
  Options options_;
  int max_step_;
  PhaseTimer& timer_;
  Tensor probs_;
  std::vector<Lane> lanes_;
  std::vector<int> active_;  // lanes of the round in progress
  std::vector<LaneFeed> feeds_;
  std::vector<VerifyRequest> requests_;
  std::vector<VerifyResult> verified_;
  std::vector<Draft> drafts_;
};

}  // namespace triforce
