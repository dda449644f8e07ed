// Models that give probs of what comes next in some sequences, the lanes, while these grow and
// shrink. Probabilities stay on the backend's device.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "triforce/backend.h"
#include "triforce/kv_cache.h"
#include "triforce/model.h"
#include "triforce/phase_timer.h"

namespace triforce {

// What a lane is fed, and where the probs after some of its tokens are written.
struct LaneFeed {
  int lane = 0;
  std::span<const Token> tokens;
  TensorView probs;  // [n, V] f32
  // A draft tree: the last ones of these tokens and of those fed before (PassPart::parents). Empty:
  // none.
  std::span<const std::int16_t> parents = {};
  // Rows of probs, rising, for the last rows.size() tokens. Empty: all n rows, for the last n.
  std::span<const std::int16_t> rows = {};
  TensorView logits = {};  // as probs, what they are made of; data is null: not wanted
  std::int64_t wanted() const { return rows.empty() ? probs.shape[0] : std::ssize(rows); }
};

// A model with a cache for each of some sequences, the lanes: probs of the next token for each
// while it grows and shrinks.
class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual int lanes() const = 0;
  virtual std::int64_t length(int lane) const = 0;  // tokens its cache holds
  // Appends the tokens of these lanes, in rising order, and writes their probs. A lane gets the
  // same bits whatever others are fed, and a token of a tree those that it gets behind the tokens
  // that it follows alone. Lanes have trees of equally many tokens, or none.
  virtual void feed(std::span<const LaneFeed> feeds) = 0;
  // Records the passes of a feed() of so many tokens and probs of each lane, with trees of
  // tree_tokens, as far as its backend records them and has not yet (LlamaModel::record_pass);
  // lengths stay.
  virtual void record_passes(std::int64_t tokens, std::int64_t probs, std::int64_t tree_tokens) = 0;
  virtual void truncate(int lane, std::int64_t length) = 0;
  // KvCache::keep(). Nothing else is asked of a lane while it holds a tree, but to feed more of it.
  virtual void keep(int lane, std::int64_t length, std::span<const std::int16_t> path) = 0;
  virtual void commit(int lane, std::int64_t length) = 0;
  virtual std::int64_t vocab() const = 0;
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
              const SamplingParams& sampling, PhaseTimer& timer, Phase pass_phase,
              Precision precision = Precision::kOwn);
  int lanes() const override { return static_cast<int>(lanes_.size()); }
  std::int64_t length(int lane) const override { return cache(lane).length(); }
  void feed(std::span<const LaneFeed> feeds) override;
  void record_passes(std::int64_t tokens, std::int64_t probs, std::int64_t tree_tokens) override;
  void truncate(int lane, std::int64_t length) override { cache(lane).truncate(length); }
  void keep(int lane, std::int64_t length, std::span<const std::int16_t> path) override;
  void commit(int lane, std::int64_t length) override;
  std::int64_t vocab() const override { return model_.config().vocab; }

 private:
  KvCache& cache(int lane) const { return *lanes_[static_cast<std::size_t>(lane)].cache; }

  Backend& backend_;
  LlamaModel& model_;
  std::vector<LaneCache> lanes_;
  std::vector<LaneFeed> of_lanes_;  // of the feed() in progress
  std::vector<PassPart> parts_;     // of the pass in progress
  std::vector<ProbsRequest> made_;  // of its logits
  SamplingParams sampling_;
  PhaseTimer& timer_;
  Phase pass_phase_;
  Precision precision_;
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
  // each of `guess`: guess.size() + 1 rows. The guess is a draft tree behind that token, or with no
  // parents a chain. Valid until the next call.
  LaneFeed score(std::span<const Token> guess, std::span<const std::int16_t> parents,
                 TensorView probs);
  // The same for more guessed tokens, after a score() without a guess or a score_next(): so many
  // rows. parents: of all tokens that were guessed since that score(), in their order; of a chain
  // none.
  LaneFeed score_next(std::span<const Token> guess, std::span<const std::int16_t> parents,
                      TensorView probs);

 private:
  // Leaves in the scorer's cache what the sequence begins with, of a tree its path.
  void drop_stale();
  Scorer* scorer_;
  int lane_;
  std::int64_t base_ = 0;      // tokens that are final in the scorer's cache
  std::vector<Token> tokens_;  // the sequence after base_
  std::vector<Token> fed_;     // what the cache holds after base_, the last ones maybe a tree
  std::vector<std::int16_t> tree_, path_;  // its parents; what drop_stale() keeps of it
  std::vector<Token> input_;
};

}  // namespace triforce
