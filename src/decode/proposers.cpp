#include "triforce/speculate.h"

namespace triforce {
namespace {

Token checked(Token token, std::int64_t position) {
  if (token < 0)
    throw_numeric("logits for position {}: expected finite numbers, found NaN or infinity",
                  position);
  return token;
}

Tensor make_probs(Backend& backend, std::int64_t rows, std::int64_t vocab) {
  return {backend.allocator(), DType::kF32, {rows, vocab}, backend.place(), MemTag::kProbs};
}

}  // namespace

ModelProposer::ModelProposer(Backend& backend, std::unique_ptr<Scorer> scorer, int max_request,
                             Acceptance acceptance, PhaseTimer& timer)
    : backend_(backend),
      scorer_(std::move(scorer)),
      sequence_(*scorer_),
      acceptance_(acceptance),
      timer_(timer),
      probs_(make_probs(backend, max_request, scorer_->vocab())) {
  tokens_.reserve(static_cast<std::size_t>(max_request));
  origins_.assign(static_cast<std::size_t>(max_request), 0);
}

void ModelProposer::start(const GenerationStart& s) {
  key_ = {s.seed, s.prompt, level(), 0};
  sequence_.start(s.prefix, s.last);
}

Draft ModelProposer::propose(int n) {
  ++key_.round;
  tokens_.clear();
  for (int i = 0; i < n; ++i) {
    const TensorView probs = probs_.view().rows(i, 1);
    if (i == 0) {
      sequence_.score({}, probs);
    } else {
      sequence_.score_next(tokens_.back(), probs);
    }
    const PhaseTimer::Scope scope(timer_, Phase::kSampling);
    const std::int64_t position = sequence_.length() + i;
    tokens_.push_back(checked(backend_.sample(probs, key_, position, acceptance_), position));
  }
  return {tokens_, {origins_.data(), tokens_.size()}, probs_.view().rows(0, n)};
}

void ModelProposer::append_counters(std::vector<LevelCounters>& /*out*/) const {}

SpeculativeProposer::SpeculativeProposer(Backend& backend, std::unique_ptr<Proposer> inner,
                                         std::unique_ptr<Scorer> verifier, Options options,
                                         PhaseTimer& timer)
    : backend_(backend),
      inner_(std::move(inner)),
      verifier_(std::move(verifier)),
      sequence_(*verifier_),
      options_(std::move(options)),
      max_step_(options_.step),
      timer_(timer),
      probs_(make_probs(backend, max_tokens(options_.max_request), verifier_->vocab())) {
  tokens_.reserve(static_cast<std::size_t>(max_tokens(options_.max_request)));
  origins_.reserve(tokens_.capacity());
}

void SpeculativeProposer::start(const GenerationStart& s) {
  key_ = {s.seed, s.prompt, level(), 0};
  counters_ = {};
  counters_.name = options_.name;
  // Sized now, so that rounds do not allocate.
  const auto max_tokens = static_cast<std::size_t>(inner_->max_tokens(max_step_));
  counters_.tested_at.assign(max_tokens, 0);
  counters_.accepted_at.assign(max_tokens, 0);
  counters_.histogram.assign(max_tokens + 1, 0);
  inner_->start(s);
  sequence_.start(s.prefix, s.last);
}

Draft SpeculativeProposer::propose(int n) {
  const std::int64_t base = length();
  tokens_.clear();
  origins_.clear();
  while (static_cast<int>(tokens_.size()) < n) {
    const Draft draft = inner_->propose(options_.step);
    const auto proposed = static_cast<std::int64_t>(draft.tokens.size());
    // Probs of tokens that are kept stay where they are: the next round writes behind them.
    const TensorView p =
        probs_.view().rows(static_cast<std::int64_t>(tokens_.size()), proposed + 1);
    sequence_.score(draft.tokens, p);
    ++key_.round;
    VerifyResult v;
    {
      const PhaseTimer::Scope scope(timer_, Phase::kSampling);
      v = backend_.verify(p, draft.probs, draft.tokens, key_, length(), options_.rule);
    }
    checked(v.next, length() + v.accepted);
    counters_.add_round(options_.step, proposed, v.accepted);
    const auto kept = static_cast<std::ptrdiff_t>(v.accepted);
    const std::size_t first_new = tokens_.size();
    tokens_.insert(tokens_.end(), draft.tokens.begin(), draft.tokens.begin() + kept);
    origins_.insert(origins_.end(), draft.origins.begin(), draft.origins.begin() + kept);
    tokens_.push_back(v.next);
    origins_.push_back(static_cast<std::uint8_t>(level()));
    extend(std::span<const Token>(tokens_).subspan(first_new));
    if (options_.on_round) options_.on_round(v.accepted, v.accepted + (v.accepted < proposed));
  }
  truncate(base);
  return {tokens_, origins_, probs_.view().rows(0, static_cast<std::int64_t>(tokens_.size()))};
}

void SpeculativeProposer::extend(std::span<const Token> tokens) {
  sequence_.extend(tokens);
  inner_->extend(tokens);
}

void SpeculativeProposer::truncate(std::int64_t length) {
  sequence_.truncate(length);
  inner_->truncate(length);
}

// The verifier first: a retrieval cache below takes its exact rows from the verifier's full cache.
void SpeculativeProposer::commit(std::int64_t length) {
  sequence_.commit(length);
  inner_->commit(length);
}

void SpeculativeProposer::append_counters(std::vector<LevelCounters>& out) const {
  inner_->append_counters(out);
  out.push_back(counters_);
}

void SpeculativeProposer::set_step(int step) {
  TF_CHECK(step >= 1 && step <= max_step_, "step {} of at most {}", step, max_step_);
  options_.step = step;
}

}  // namespace triforce
