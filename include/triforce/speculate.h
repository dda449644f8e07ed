// Speculative decoding as composition (arXiv 2404.11912, section 4): Speculate(proposer, verifier)
// is itself a proposer, so levels stack to any depth. Probabilities stay on the backend's device.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "triforce/draft_tree.h"
#include "triforce/metrics.h"
#include "triforce/scorer.h"

namespace triforce {

// Guessed tokens of a lane, the probs each was drawn from, and the level that produced each. Valid
// until the next call to the proposer.
struct Draft {
  std::span<const Token> tokens;
  std::span<const std::uint8_t> origins;
  // [tokens.size(), V]: row i + 1 is what the tokens that follow token i were drawn from, without
  // replacement; row 0: those that nothing drafted comes before.
  TensorView probs;
  std::span<const std::int16_t> parents;  // VerifyRequest::parents; empty: a chain
  // Where probs that were needed are not finite; the lane is at its end, and is to be asked for
  // nothing else. Empty: nowhere.
  std::optional<std::int64_t> failed_at;

  std::int32_t parent(std::int32_t token) const {
    return parents.empty() ? token - 1 : std::int32_t{parents[static_cast<std::size_t>(token)]};
  }
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
  // Guesses for each of these lanes, in rising order, but for those that fail. Where a chain is
  // asked for, it is a chain of at least so many tokens, and at most max_tokens(), or maybe none at
  // all; else a tree of that shape. Sequences stay. Returns the drafts in the order of `lanes`.
  virtual std::span<const Draft> propose(std::span<const int> lanes, const DraftTree& shape) = 0;
  virtual int max_tokens(const DraftTree& shape) const = 0;
  virtual bool may_have_none() const { return false; }
  // Records every pass that propose() can run for this shape (Scorer::record_passes), so that no
  // round has to. unfed: how many of the newest tokens its scorer may not have been fed when it is
  // asked, at most: the last one that it gave itself, and one of each level above. Once started.
  virtual void record_passes(const DraftTree& shape, int unfed) = 0;
  virtual std::int64_t length(int lane) const = 0;
  virtual void extend(int lane, std::span<const Token> tokens) = 0;
  virtual void truncate(int lane, std::int64_t length) = 0;
  virtual void commit(int lane, std::int64_t length) = 0;
  // Counters of a lane since start(), innermost first.
  virtual void append_counters(int lane, std::vector<LevelCounters>& out) const = 0;
  virtual std::uint32_t level() const = 0;
};

// Draws one level of a draft after another from its scorer's probs.
class ModelProposer final : public Proposer {
 public:
  // Never asked for more nodes or levels than `asked` has, or for branches where it has none.
  ModelProposer(Backend& backend, std::unique_ptr<Scorer> scorer, const DraftTree& asked,
                Acceptance acceptance, PhaseTimer& timer);
  int lanes() const override { return scorer_->lanes(); }
  void start(std::span<const GenerationStart> lanes) override;
  std::span<const Draft> propose(std::span<const int> lanes, const DraftTree& shape) override;
  int max_tokens(const DraftTree& shape) const override { return shape.nodes(); }
  void record_passes(const DraftTree& shape, int unfed) override;
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
    TensorView probs, logits;  // [nodes asked for, V]; no logits of chains
    std::vector<Token> tokens;
    DrawKey key;
    std::optional<std::int64_t> failed_at;
  };
  Lane& lane_at(int lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  const Lane& lane_at(int lane) const { return lanes_[static_cast<std::size_t>(lane)]; }
  void find_parents(const DraftTree& shape, int depth);
  void feed(std::span<const int> lanes, const DraftTree& shape, int depth);
  void draw(const DraftTree& shape, int depth);

  Backend& backend_;
  std::unique_ptr<Scorer> scorer_;
  DraftTree asked_;
  Acceptance acceptance_;
  PhaseTimer& timer_;
  Tensor probs_, logits_;
  std::vector<std::uint8_t> origins_;
  std::vector<Lane> lanes_;
  // The nodes whose children are drawn now, or the root, and their rows of probs. Of all that were
  // fed so far, by their numbers in the tree: their numbers and parents in the order of feeding.
  std::vector<std::int16_t> nodes_, rows_, fed_number_, fed_parents_;
  std::vector<Token> guess_;
  std::vector<LaneFeed> feeds_;
  std::vector<SampleRequest> requests_;
  std::vector<Token> drawn_;
  std::vector<Draft> drafts_;
};

// Lets `inner` guess and verifies with `verifier`: every token follows the verifier's distribution.
class SpeculativeProposer final : public Proposer {
 public:
  struct Options {
    // Asked of the inner proposer for each verification, until set_draft() says otherwise.
    DraftTree draft = DraftTree::chain(6);
    // This one is never asked for more nodes or levels, or for branches where it has none.
    DraftTree asked = DraftTree::chain(1);
    VerifyRule rule;
    const char* name = "outer";
    // After every round of a lane: levels of the draft with an accepted proposal, and those with a
    // tested one.
    std::function<void(int lane, std::int64_t accepted, std::int64_t tested)> on_round;
  };
  SpeculativeProposer(Backend& backend, std::unique_ptr<Proposer> inner,
                      std::unique_ptr<Scorer> verifier, Options options, PhaseTimer& timer);
  int lanes() const override { return inner_->lanes(); }
  void start(std::span<const GenerationStart> lanes) override;
  // Rounds of all lanes that have too few tokens, until none has. Of a tree that has branches, the
  // path of first children is drafted so, then their siblings are drawn from what they were drawn
  // from, and then the paths that begin at siblings are drafted.
  std::span<const Draft> propose(std::span<const int> lanes, const DraftTree& shape) override;
  int max_tokens(const DraftTree& shape) const override;
  void record_passes(const DraftTree& shape, int unfed) override;
  std::int64_t length(int lane) const override { return lane_at(lane).sequence.length(); }
  void extend(int lane, std::span<const Token> tokens) override;
  void truncate(int lane, std::int64_t length) override;
  void commit(int lane, std::int64_t length) override;
  void append_counters(int lane, std::vector<LevelCounters>& out) const override;
  std::uint32_t level() const override { return inner_->level() + 1; }
  // What is asked for in rounds to come, with at most the nodes and levels of construction, and
  // branches only if that had some. nullopt: the inner proposer is not asked, and each round draws
  // one token from the verifier's pass. To be called before start().
  void set_draft(const std::optional<DraftTree>& draft);
  bool asks() const { return draft_.has_value(); }

 private:
  struct Lane {
    Sequence sequence;
    TensorView probs, logits;   // [rows of the rounds of a path, V]; logits if trees are asked
    std::vector<Token> tokens;  // of the path that is drafted
    std::vector<std::uint8_t> origins;
    TensorView tree_probs;           // [nodes, V]
    std::vector<Token> tree_tokens;  // [nodes]
    std::vector<std::uint8_t> tree_origins;
    DrawKey key;
    LevelCounters counters;
    std::int64_t base = 0;  // length of the sequence when propose() began
    std::optional<std::int64_t> failed_at;
  };
  Lane& lane_at(int lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  const Lane& lane_at(int lane) const { return lanes_[static_cast<std::size_t>(lane)]; }
  int longest(const DraftTree& draft) const;  // tokens of one that a round may keep
  void draft_path(std::span<const int> lanes, int tokens);
  void draft_paths(std::span<const int> lanes, const DraftTree& shape);
  void draft_branch(std::span<const int> lanes, const DraftTree& shape, int node);
  void draw_siblings(std::span<const int> lanes, const DraftTree& shape, int node);
  void round(std::span<const int> lanes);
  void keep(int lane, const Draft& draft, const VerifyResult& verified);
  void keep_rows(const Lane& lane, std::int64_t first);
  void count(LevelCounters& counters, const Draft& draft, const VerifyResult& verified,
             bool rejects) const;

  Backend& backend_;
  std::unique_ptr<Proposer> inner_;
  std::unique_ptr<Scorer> verifier_;
  Options options_;
  std::optional<DraftTree> draft_;  // that is asked for now
  PhaseTimer& timer_;
  Tensor probs_, logits_, tree_probs_;
  std::vector<Lane> lanes_;
  std::vector<int> active_, branching_;  // lanes of the round, of the path in progress
  std::vector<std::int16_t> path_;       // nodes that a round keeps
  std::vector<SampleRequest> siblings_;
  std::vector<Token> drawn_;
  std::vector<LaneFeed> feeds_;
  std::vector<VerifyRequest> requests_;
  std::vector<VerifyResult> verified_;
  std::vector<Draft> drafts_;
};

}  // namespace triforce
