// What followed earlier in a sequence, proposed without a model (prompt lookup decoding, which
// transformers has as prompt_lookup_num_tokens; with a suffix automaton SAM-Decoding, arXiv
// 2411.10666).
#pragma once
#include <memory>
#include <vector>

#include "decode/suffix_automaton.h"
#include "triforce/decode.h"

namespace triforce {

// What followed the longest repeat of the text's end where that stood first, into `out`. It goes on
// with itself: a text that repeats itself has no end. Nothing where not even its last token has
// been there before.
void look_up(const SuffixAutomaton& text, const Lookup& options, int count,
             std::vector<Token>& out);

// Proposes chains that are looked up: as many tokens as are asked for, or none. Each is certain:
// the probabilities that it was drawn from are 1 for it and 0 for all others.
class LookupProposer final : public Proposer {
 public:
  using Texts = std::vector<std::unique_ptr<SuffixAutomaton>>;  // the sequence of each lane

  // Never asked for more than `most` tokens. `texts` outlive it, and follow what it is told.
  // Throws Error(kResources).
  LookupProposer(Backend& backend, Texts& texts, const Lookup& options, int most,
                 std::int64_t vocab, PhaseTimer& timer);
  // Of MemTag::kWorkspace.
  static std::int64_t workspace_bytes() { return 2 * size_of(DType::kF32); }

  int lanes() const override { return static_cast<int>(lanes_.size()); }
  void start(std::span<const GenerationStart> lanes) override;
  std::span<const Draft> propose(std::span<const int> lanes, const DraftTree& shape) override;
  int max_tokens(const DraftTree& shape) const override { return shape.nodes(); }
  bool may_have_none() const override { return true; }
  void record_passes(const DraftTree& /*shape*/, int /*unfed*/) override {}
  std::int64_t length(int lane) const override { return text(lane).length(); }
  void extend(int lane, std::span<const Token> tokens) override;
  void truncate(int lane, std::int64_t length) override { text(lane).truncate(length); }
  void commit(int /*lane*/, std::int64_t /*length*/) override {}
  void append_counters(int /*lane*/, std::vector<LevelCounters>& /*out*/) const override {}
  std::uint32_t level() const override { return 0; }

 private:
  struct Lane {
    std::vector<Token> tokens;
    std::vector<Token> certain;  // of each row of its probs the token that has them; -1: none
  };
  SuffixAutomaton& text(int lane) const { return *texts_[static_cast<std::size_t>(lane)]; }
  void make_certain(TensorView probs, Token& certain, Token token);

  Backend& backend_;
  Texts& texts_;
  Lookup options_;
  PhaseTimer& timer_;
  int most_;
  std::vector<std::uint8_t> origins_;
  Tensor probs_, values_;  // [lanes * most, V]; {0, 1}
  std::vector<Lane> lanes_;
  std::vector<Draft> drafts_;
};

}  // namespace triforce
