#include "triforce/speculate.h"

#include <algorithm>

namespace triforce {
namespace {

// Capacity that spares the loop any allocation: a round of the largest gammas on both levels.
constexpr std::size_t kReserve = 256;

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

void PhaseTimer::start() {
  totals_.fill(0.0);
  marks_.clear();
  current_ = Phase::kHostGap;
  running_ = true;
  marks_.push_back({backend_.record(), current_});
}

void PhaseTimer::stop() {
  if (!running_) return;
  marks_.push_back({backend_.record(), current_});
  flush();
  running_ = false;
}

void PhaseTimer::enter(Phase phase) {
  current_ = phase;
  if (!running_) return;
  marks_.push_back({backend_.record(), phase});
  if (marks_.size() > kMaxMarks) flush();
}

// Each span belongs to the phase entered at its start; the last mark opens the next span.
void PhaseTimer::flush() {
  for (std::size_t i = 0; i + 1 < marks_.size(); ++i)
    totals_[static_cast<std::size_t>(marks_[i].phase)] +=
        backend_.elapsed_ms(marks_[i].event, marks_[i + 1].event);
  marks_.front() = marks_.back();
  marks_.resize(1);
}

ModelScorer::ModelScorer(Backend& backend, LlamaModel& model, KvCache& cache,
                         LayerObserver* observer, const SamplingParams& sampling, PhaseTimer& timer,
                         Phase pass_phase)
    : backend_(backend),
      model_(model),
      cache_(cache),
      observer_(observer),
      sampling_(sampling),
      timer_(timer),
      pass_phase_(pass_phase) {}

// Calls visit(part) of each pass over `tokens` tokens, of which the last `probs` want probs.
template <class Visit>
void ModelScorer::for_each_part(std::int64_t tokens, std::int64_t probs, const Visit& visit) const {
  TF_CHECK(probs >= 1 && probs <= tokens, "{} probs of {} tokens", probs, tokens);
  for (Part p; p.begin < tokens; p.begin += p.rows) {
    p.rows = std::min({tokens - p.begin, model_.max_logits(), cache_.max_append()});
    p.probs = std::clamp<std::int64_t>(p.begin + p.rows - (tokens - probs), 0, p.rows);
    visit(p);
  }
}

void ModelScorer::feed(std::span<const Token> tokens, TensorView probs) {
  const PhaseTimer::Scope scope(timer_, pass_phase_);
  std::int64_t done = 0;
  for_each_part(std::ssize(tokens), probs.shape[0], [&](const Part& p) {
    const TensorView logits = model_.forward(p.of(tokens), cache_, p.want(), observer_);
    if (p.probs == 0) return;
    const PhaseTimer::Scope sampling(timer_, Phase::kSampling);
    backend_.to_probs(logits.rows(logits.shape[0] - p.probs, p.probs), sampling_,
                      probs.rows(done, p.probs));
    done += p.probs;
  });
}

void ModelScorer::record_passes(std::span<const Token> tokens, std::int64_t probs) {
  for_each_part(std::ssize(tokens), probs,
                [&](const Part& p) { model_.record_pass(p.of(tokens), cache_, p.want()); });
}

void ModelScorer::commit(std::int64_t length) {
  const PhaseTimer::Scope scope(timer_, Phase::kCacheUpdate);
  cache_.commit(length);
}

void Sequence::start(std::int64_t prefix, Token last) {
  TF_CHECK(scorer_.length() == prefix, "cache holds {} tokens, expected {}", scorer_.length(),
           prefix);
  base_ = prefix;
  for (auto* v : {&tokens_, &fed_, &input_}) {
    v->reserve(kReserve);
    v->clear();
  }
  tokens_.push_back(last);
}

void Sequence::extend(std::span<const Token> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void Sequence::truncate(std::int64_t length) {
  TF_CHECK(length > base_ && length <= this->length(), "truncate to {} of [{}, {}]", length, base_,
           this->length());
  tokens_.resize(static_cast<std::size_t>(length - base_));
}

void Sequence::drop_stale() {
  const auto common = std::min(fed_.size(), tokens_.size());
  const auto stale = std::mismatch(fed_.begin(), fed_.begin() + static_cast<std::ptrdiff_t>(common),
                                   tokens_.begin());
  fed_.erase(stale.first, fed_.end());
  scorer_.truncate(base_ + static_cast<std::int64_t>(fed_.size()));
}

void Sequence::commit(std::int64_t length) {
  drop_stale();
  const std::int64_t final_length = std::min(length, scorer_.length());
  scorer_.commit(final_length);
  const auto done = static_cast<std::ptrdiff_t>(final_length - base_);
  tokens_.erase(tokens_.begin(), tokens_.begin() + done);
  fed_.erase(fed_.begin(), fed_.begin() + done);
  base_ = final_length;
}

void Sequence::score(std::span<const Token> guess, TensorView probs) {
  drop_stale();
  // The distribution after the last token of the sequence is needed, so that token is fed (again).
  const auto keep = std::min(fed_.size(), tokens_.size() - 1);
  fed_.resize(keep);
  scorer_.truncate(base_ + static_cast<std::int64_t>(keep));
  input_.assign(tokens_.begin() + static_cast<std::ptrdiff_t>(keep), tokens_.end());
  input_.insert(input_.end(), guess.begin(), guess.end());
  scorer_.feed(input_, probs);
  fed_.insert(fed_.end(), input_.begin(), input_.end());
}

void Sequence::score_next(Token guess, TensorView probs) {
  scorer_.feed({&guess, 1}, probs);
  fed_.push_back(guess);
}

void Sequence::record_score(int unfed, int guesses) {
  TF_CHECK(unfed >= 1 && guesses >= 0, "{} tokens and {} guesses", unfed, guesses);
  input_.assign(static_cast<std::size_t>(unfed + guesses), tokens_.back());
  scorer_.record_passes(input_, guesses + 1);
}

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

// What score_next() feeds is one token, too.
void ModelProposer::record_passes(int unfed) {
  for (int fed = 1; fed <= unfed; ++fed) sequence_.record_score(fed, 0);
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
    const Draft draft = options_.step > 0 ? inner_->propose(options_.step) : Draft{};
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

void SpeculativeProposer::record_passes(int unfed) {
  const int asked = options_.step, most = asked > 0 ? inner_->max_tokens(asked) : 0;
  if (asked > 0) inner_->record_passes(unfed + 1);
  for (int guesses = asked; guesses <= most; ++guesses) {
    for (int fed = 1; fed <= unfed; ++fed) sequence_.record_score(fed, guesses);
  }
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
  TF_CHECK(step >= 0 && step <= max_step_, "step {} of at most {}", step, max_step_);
  options_.step = step;
}

}  // namespace triforce
