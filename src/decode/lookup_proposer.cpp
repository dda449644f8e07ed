// Tests: tests/decode/lookup_test.cpp
#include "decode/lookup_proposer.h"

#include <array>

namespace triforce {

void look_up(const SuffixAutomaton& text, const Lookup& options, int count,
             std::vector<Token>& out) {
  out.clear();
  const SuffixAutomaton::Repeat found =
      options.longest > 0 ? text.repeat(options.longest) : text.repeat();
  if (found.length == 0) return;
  for (std::int64_t i = found.end; std::ssize(out) < count; ++i) {
    const std::int64_t beyond = i - text.length();
    out.push_back(beyond < 0 ? text.at(i) : out[static_cast<std::size_t>(beyond)]);
  }
}

LookupProposer::LookupProposer(Backend& backend, Texts& texts, const Lookup& options, int most,
                               std::int64_t vocab, PhaseTimer& timer)
    : backend_(backend),
      texts_(texts),
      options_(options),
      timer_(timer),
      most_(most),
      origins_(static_cast<std::size_t>(most), 0),
      probs_(backend.allocator(), DType::kF32, {std::ssize(texts) * most, vocab}, backend.place(),
             MemTag::kProbs),
      values_(backend.allocator(), DType::kF32, {2}, backend.place(), MemTag::kWorkspace),
      lanes_(texts.size()) {
  std::array<float, 2> zero_and_one = {0, 1};
  backend.upload(values_.view(), make_view(zero_and_one.data(), DType::kF32, {2}));
  for (Lane& lane : lanes_) {
    lane.tokens.reserve(origins_.size());
    lane.certain.assign(origins_.size(), -1);
  }
  drafts_.reserve(lanes_.size());
}

void LookupProposer::start(std::span<const GenerationStart> lanes) {
  TF_CHECK(lanes.size() == lanes_.size(), "{} of {} lanes", lanes.size(), lanes_.size());
  for (int l = 0; l < this->lanes(); ++l) {
    const std::int64_t expected = lanes[static_cast<std::size_t>(l)].prefix + 1;
    TF_CHECK(text(l).length() == expected, "a text of {} tokens, expected {}", text(l).length(),
             expected);
  }
}

std::span<const Draft> LookupProposer::propose(std::span<const int> lanes, const DraftTree& shape) {
  TF_CHECK(shape.is_chain() && shape.nodes() <= most_, "a draft of {} tokens, at most {}",
           shape.nodes(), most_);
  const PhaseTimer::Scope scope(timer_, phase_of(Pass::kLookup));
  drafts_.clear();
  for (const int l : lanes) {
    Lane& lane = lanes_[static_cast<std::size_t>(l)];
    look_up(text(l), options_, shape.nodes(), lane.tokens);
    const auto n = std::ssize(lane.tokens);
    Draft& draft = drafts_.emplace_back();
    if (n == 0) continue;
    draft.tokens = lane.tokens;
    draft.origins = std::span(origins_).first(lane.tokens.size());
    draft.probs = probs_.view().rows(std::int64_t{l} * most_, n);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto row = static_cast<std::size_t>(i);
      make_certain(draft.probs.rows(i, 1), lane.certain[row], lane.tokens[row]);
    }
  }
  return drafts_;
}

// All other probabilities of the row are 0 already.
void LookupProposer::make_certain(TensorView probs, Token& certain, Token token) {
  if (certain == token) return;
  const auto set = [&](Token id, std::int64_t value) {
    backend_.copy(probs.slice(1, id, 1), values_.view().rows(value, 1));
  };
  if (certain >= 0) set(certain, 0);
  set(token, 1);
  certain = token;
}

void LookupProposer::extend(int lane, std::span<const Token> tokens) {
  for (const Token t : tokens) text(lane).append(t);
}

}  // namespace triforce
