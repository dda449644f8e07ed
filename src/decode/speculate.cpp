// Tests: tests/decode/engine_test.cpp, tests/decode/lanes_test.cpp
#include "triforce/speculate.h"

#include <algorithm>
#include <iterator>

#include "decode/lane_passes.h"

namespace triforce {
namespace {

// Capacity that spares the loop any allocation: a round of the largest gammas on both levels.
constexpr std::size_t kReserve = 256;

Tensor make_probs(Backend& backend, std::int64_t rows, std::int64_t vocab) {
  return {backend.allocator(), DType::kF32, {rows, vocab}, backend.place(), MemTag::kProbs};
}

// Of a lane of a pass: its tokens, and those of its probs that they give.
struct Share {
  std::span<const Token> tokens;
  std::int64_t first_probs = 0, probs = 0;
};

// Of a lane that is fed `tokens`, and wants the probs of so many of the last ones.
Share share_of(std::span<const Token> tokens, std::int64_t probs, const LanePass& pass) {
  const auto n = std::ssize(tokens);
  const std::int64_t begin = std::min(pass.begin, n), end = std::min(pass.begin + pass.rows, n);
  const std::int64_t wanted = n - probs;  // the first token whose probs are
  return {tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
          std::max<std::int64_t>(begin - wanted, 0), end - std::clamp(wanted, begin, end)};
}

// Of a pass of which no lane needs more than so many probs, those of its last tokens.
Logits want_of(std::int64_t probs) {
  return probs == 0 ? Logits::kNone : probs == 1 ? Logits::kLast : Logits::kAll;
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
  totals();
  running_ = false;
}

const PhaseTimes& PhaseTimer::totals() {
  if (running_) {
    marks_.push_back({backend_.record(), current_});
    flush();
  }
  return totals_;
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

ModelScorer::ModelScorer(Backend& backend, LlamaModel& model, std::vector<LaneCache> lanes,
                         const SamplingParams& sampling, PhaseTimer& timer, Phase pass_phase)
    : backend_(backend),
      model_(model),
      lanes_(std::move(lanes)),
      of_lanes_(lanes_.size()),
      sampling_(sampling),
      timer_(timer),
      pass_phase_(pass_phase) {
  TF_CHECK(!lanes_.empty());
  for (std::size_t l = 0; l < lanes_.size(); ++l) of_lanes_[l].lane = static_cast<int>(l);
  parts_.reserve(lanes_.size());
}

void ModelScorer::feed(std::span<const LaneFeed> feeds) {
  const PhaseTimer::Scope scope(timer_, pass_phase_);
  for (LaneFeed& f : of_lanes_) f = {f.lane, {}, {}};
  std::int64_t most = 0;
  for (const LaneFeed& f : feeds) {
    const auto n = std::ssize(f.tokens);
    TF_CHECK(f.probs.shape[0] >= 1 && f.probs.shape[0] <= n, "{} probs of {} tokens",
             f.probs.shape[0], n);
    of_lanes_.at(static_cast<std::size_t>(f.lane)) = f;
    most = std::max(most, n);
  }
  // Where passes are recorded those who are fed nothing take part, so that passes are few.
  const bool all_take_part = backend_.traits().records_passes && cache(0).recordable();
  const std::span<const LaneFeed> taking_part = all_take_part ? of_lanes_ : feeds;
  const auto feed_pass = [&](const LanePass& pass) {
    const auto of_pass = taking_part.subspan(static_cast<std::size_t>(pass.first_lane),
                                             static_cast<std::size_t>(pass.lanes));
    parts_.clear();
    std::int64_t tokens = 0, probs = 0;
    for (const LaneFeed& f : of_pass) {
      const Share share = share_of(f.tokens, f.probs.shape[0], pass);
      const LaneCache& lane = lanes_[static_cast<std::size_t>(f.lane)];
      parts_.push_back({share.tokens, lane.cache, lane.observer});
      tokens = std::max(tokens, std::ssize(share.tokens));
      probs = std::max(probs, share.probs);
    }
    if (tokens == 0) return;
    const TensorView logits = model_.forward(parts_, want_of(probs));
    if (probs == 0) return;
    const PhaseTimer::Scope sampling(timer_, Phase::kSampling);
    const std::int64_t each = logits.shape[0] / pass.lanes;
    std::int64_t end = 0;  // of the lane's rows
    for (const LaneFeed& f : of_pass) {
      const Share share = share_of(f.tokens, f.probs.shape[0], pass);
      end += each;
      if (share.probs == 0) continue;
      backend_.to_probs(logits.rows(end - share.probs, share.probs), sampling_,
                        f.probs.rows(share.first_probs, share.probs));
    }
  };
  for_each_lane_pass(static_cast<int>(taking_part.size()), most, model_.max_logits(),
                     cache(0).max_append(), feed_pass);
}

void ModelScorer::record_passes(std::int64_t tokens, std::int64_t probs) {
  const std::vector<Token> any(static_cast<std::size_t>(tokens));
  const auto record = [&](const LanePass& pass) {
    const Share share = share_of(any, probs, pass);
    parts_.clear();
    for (int l = 0; l < pass.lanes; ++l) {
      parts_.push_back({share.tokens, &cache(pass.first_lane + l)});
    }
    model_.record_pass(parts_, want_of(share.probs));
  };
  for_each_lane_pass(lanes(), tokens, model_.max_logits(), cache(0).max_append(), record);
}

void ModelScorer::commit(int lane, std::int64_t length) {
  const PhaseTimer::Scope scope(timer_, Phase::kCacheUpdate);
  cache(lane).commit(length);
}

void Sequence::start(std::int64_t prefix, Token last) {
  TF_CHECK(scorer_->length(lane_) == prefix, "cache holds {} tokens, expected {}",
           scorer_->length(lane_), prefix);
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
  scorer_->truncate(lane_, base_ + static_cast<std::int64_t>(fed_.size()));
}

void Sequence::commit(std::int64_t length) {
  drop_stale();
  const std::int64_t final_length = std::min(length, scorer_->length(lane_));
  scorer_->commit(lane_, final_length);
  const auto done = static_cast<std::ptrdiff_t>(final_length - base_);
  tokens_.erase(tokens_.begin(), tokens_.begin() + done);
  fed_.erase(fed_.begin(), fed_.begin() + done);
  base_ = final_length;
}

LaneFeed Sequence::score(std::span<const Token> guess, TensorView probs) {
  drop_stale();
  // The distribution after the last token of the sequence is needed, so that token is fed (again).
  const auto keep = std::min(fed_.size(), tokens_.size() - 1);
  fed_.resize(keep);
  scorer_->truncate(lane_, base_ + static_cast<std::int64_t>(keep));
  input_.assign(tokens_.begin() + static_cast<std::ptrdiff_t>(keep), tokens_.end());
  input_.insert(input_.end(), guess.begin(), guess.end());
  fed_.insert(fed_.end(), input_.begin(), input_.end());
  return {lane_, input_, probs};
}

LaneFeed Sequence::score_next(Token guess, TensorView probs) {
  input_.assign(1, guess);
  fed_.push_back(guess);
  return {lane_, input_, probs};
}

ModelProposer::ModelProposer(Backend& backend, std::unique_ptr<Scorer> scorer, int max_request,
                             Acceptance acceptance, PhaseTimer& timer)
    : backend_(backend),
      scorer_(std::move(scorer)),
      acceptance_(acceptance),
      timer_(timer),
      probs_(make_probs(backend, std::int64_t{scorer_->lanes()} * max_request, scorer_->vocab())),
      origins_(static_cast<std::size_t>(max_request), 0) {
  for (int l = 0; l < lanes(); ++l) {
    lanes_.push_back({Sequence(*scorer_, l),
                      probs_.view().rows(std::int64_t{l} * max_request, max_request),
                      {},
                      {},
                      {}});
    lanes_.back().tokens.reserve(static_cast<std::size_t>(max_request));
  }
  feeds_.reserve(lanes_.size());
  requests_.reserve(lanes_.size());
  drawn_.reserve(lanes_.size());
  drafts_.reserve(lanes_.size());
}

void ModelProposer::start(std::span<const GenerationStart> lanes) {
  TF_CHECK(lanes.size() == lanes_.size(), "{} of {} lanes", lanes.size(), lanes_.size());
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    lanes_[l].key = {lanes[l].seed, lanes[l].prompt, level(), 0};
    lanes_[l].sequence.start(lanes[l].prefix, lanes[l].last);
    lanes_[l].failed_at.reset();
  }
}

std::span<const Draft> ModelProposer::propose(std::span<const int> lanes, int n) {
  for (const int l : lanes) {
    ++lane_at(l).key.round;
    lane_at(l).tokens.clear();
  }
  for (int i = 0; i < n; ++i) {
    feeds_.clear();
    for (const int l : lanes) {
      Lane& lane = lane_at(l);
      if (lane.failed_at) continue;
      const TensorView probs = lane.probs.rows(i, 1);
      feeds_.push_back(i == 0 ? lane.sequence.score({}, probs)
                              : lane.sequence.score_next(lane.tokens.back(), probs));
    }
    scorer_->feed(feeds_);
    draw(i);
  }
  drafts_.clear();
  for (const int l : lanes) {
    const Lane& lane = lane_at(l);
    const std::size_t tokens = lane.tokens.size();
    drafts_.push_back({lane.tokens, std::span(origins_).first(tokens),
                       lane.probs.rows(0, static_cast<std::int64_t>(tokens)), lane.failed_at});
  }
  return drafts_;
}

// Token i of the lanes that were fed.
void ModelProposer::draw(int i) {
  if (feeds_.empty()) return;
  const PhaseTimer::Scope scope(timer_, Phase::kSampling);
  requests_.clear();
  for (const LaneFeed& f : feeds_) {
    const Lane& lane = lane_at(f.lane);
    requests_.push_back(
        {.probs = f.probs, .key = lane.key, .position = lane.sequence.length() + i});
  }
  drawn_.resize(requests_.size());
  backend_.sample(requests_, acceptance_, drawn_);
  for (std::size_t k = 0; k < feeds_.size(); ++k) {
    Lane& lane = lane_at(feeds_[k].lane);
    if (drawn_[k] < 0) lane.failed_at = requests_[k].position;
    lane.tokens.push_back(drawn_[k]);
  }
}

// What score_next() feeds is one token, too.
void ModelProposer::record_passes(int unfed) {
  for (int fed = 1; fed <= unfed; ++fed) scorer_->record_passes(fed, 1);
}

void ModelProposer::append_counters(int /*lane*/, std::vector<LevelCounters>& /*out*/) const {}

SpeculativeProposer::SpeculativeProposer(Backend& backend, std::unique_ptr<Proposer> inner,
                                         std::unique_ptr<Scorer> verifier, Options options,
                                         PhaseTimer& timer)
    : backend_(backend),
      inner_(std::move(inner)),
      verifier_(std::move(verifier)),
      options_(std::move(options)),
      max_step_(options_.step),
      timer_(timer) {
  TF_CHECK(verifier_->lanes() == lanes(), "{} lanes are verified, {} proposed", verifier_->lanes(),
           lanes());
  const std::int64_t most = max_tokens(options_.max_request);
  probs_ = make_probs(backend, lanes() * most, verifier_->vocab());
  for (int l = 0; l < lanes(); ++l) {
    Lane& lane = lanes_.emplace_back(
        Lane{Sequence(*verifier_, l), probs_.view().rows(l * most, most), {}, {}, {}, {}, 0, {}});
    lane.tokens.reserve(static_cast<std::size_t>(most));
    lane.origins.reserve(static_cast<std::size_t>(most));
  }
  active_.reserve(lanes_.size());
  feeds_.reserve(lanes_.size());
  requests_.reserve(lanes_.size());
  verified_.reserve(lanes_.size());
  drafts_.reserve(lanes_.size());
}

void SpeculativeProposer::start(std::span<const GenerationStart> lanes) {
  inner_->start(lanes);
  // Sized now, so that rounds do not allocate.
  const auto max_tokens = static_cast<std::size_t>(inner_->max_tokens(max_step_));
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    Lane& lane = lanes_[l];
    lane.key = {lanes[l].seed, lanes[l].prompt, level(), 0};
    lane.counters = {};
    lane.counters.name = options_.name;
    lane.counters.tested_at.assign(max_tokens, 0);
    lane.counters.accepted_at.assign(max_tokens, 0);
    lane.counters.histogram.assign(max_tokens + 1, 0);
    lane.sequence.start(lanes[l].prefix, lanes[l].last);
    lane.failed_at.reset();
  }
}

std::span<const Draft> SpeculativeProposer::propose(std::span<const int> lanes, int n) {
  for (const int l : lanes) {
    Lane& lane = lane_at(l);
    lane.base = lane.sequence.length();
    lane.tokens.clear();
    lane.origins.clear();
  }
  for (;;) {
    active_.clear();
    std::ranges::copy_if(lanes, std::back_inserter(active_), [&](int l) {
      return !lane_at(l).failed_at && std::ssize(lane_at(l).tokens) < n;
    });
    if (active_.empty()) break;
    round(active_);
  }
  drafts_.clear();
  for (const int l : lanes) {
    const Lane& lane = lane_at(l);
    truncate(l, lane.base);
    drafts_.push_back(
        {lane.tokens, lane.origins, lane.probs.rows(0, std::ssize(lane.tokens)), lane.failed_at});
  }
  return drafts_;
}

// One verification of each of these lanes.
void SpeculativeProposer::round(std::span<const int> lanes) {
  const std::span<const Draft> drafts =
      options_.step > 0 ? inner_->propose(lanes, options_.step) : std::span<const Draft>();
  const auto draft_of = [&](std::size_t i) { return drafts.empty() ? Draft{} : drafts[i]; };
  feeds_.clear();
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    Lane& lane = lane_at(lanes[i]);
    const Draft draft = draft_of(i);
    lane.failed_at = draft.failed_at;
    if (lane.failed_at) continue;
    // Probs of tokens that are kept stay where they are: the next round writes behind them.
    feeds_.push_back(lane.sequence.score(
        draft.tokens, lane.probs.rows(std::ssize(lane.tokens), std::ssize(draft.tokens) + 1)));
    ++lane.key.round;
  }
  if (feeds_.empty()) return;
  verifier_->feed(feeds_);
  requests_.clear();
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Lane& lane = lane_at(lanes[i]);
    if (lane.failed_at) continue;
    const Draft draft = draft_of(i);
    requests_.push_back({.p = feeds_[requests_.size()].probs,
                         .q = draft.probs,
                         .tokens = draft.tokens,
                         .key = lane.key,
                         .position = lane.sequence.length()});
  }
  verified_.resize(requests_.size());
  {
    const PhaseTimer::Scope scope(timer_, Phase::kSampling);
    backend_.verify(requests_, options_.rule, verified_);
  }
  auto verified = verified_.begin();
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    if (!lane_at(lanes[i]).failed_at) keep(lanes[i], draft_of(i), *verified++);
  }
}

void SpeculativeProposer::keep(int l, const Draft& draft, const VerifyResult& v) {
  Lane& lane = lane_at(l);
  if (v.next < 0) {
    lane.failed_at = lane.sequence.length() + v.accepted;
    return;
  }
  const auto proposed = std::ssize(draft.tokens);
  lane.counters.add_round(options_.step, proposed, v.accepted);
  const auto kept = static_cast<std::size_t>(v.accepted), first_new = lane.tokens.size();
  const auto append = [](auto& to, auto from) { to.insert(to.end(), from.begin(), from.end()); };
  append(lane.tokens, draft.tokens.first(kept));
  append(lane.origins, draft.origins.first(kept));
  lane.tokens.push_back(v.next);
  lane.origins.push_back(static_cast<std::uint8_t>(level()));
  extend(l, std::span<const Token>(lane.tokens).subspan(first_new));
  if (options_.on_round) {
    options_.on_round(l, v.accepted, v.accepted + (v.accepted < proposed ? 1 : 0));
  }
}

void SpeculativeProposer::record_passes(int unfed) {
  const int asked = options_.step, most = asked > 0 ? inner_->max_tokens(asked) : 0;
  if (asked > 0) inner_->record_passes(unfed + 1);
  for (int guesses = asked; guesses <= most; ++guesses) {
    for (int fed = 1; fed <= unfed; ++fed) verifier_->record_passes(fed + guesses, guesses + 1);
  }
}

void SpeculativeProposer::extend(int lane, std::span<const Token> tokens) {
  lane_at(lane).sequence.extend(tokens);
  inner_->extend(lane, tokens);
}

void SpeculativeProposer::truncate(int lane, std::int64_t length) {
  lane_at(lane).sequence.truncate(length);
  inner_->truncate(lane, length);
}

// The verifier first: a retrieval cache below takes its exact rows from the verifier's full cache.
void SpeculativeProposer::commit(int lane, std::int64_t length) {
  lane_at(lane).sequence.commit(length);
  inner_->commit(lane, length);
}

void SpeculativeProposer::append_counters(int lane, std::vector<LevelCounters>& out) const {
  inner_->append_counters(lane, out);
  out.push_back(lane_at(lane).counters);
}

void SpeculativeProposer::set_step(int step) {
  TF_CHECK(step >= 0 && step <= max_step_, "step {} of at most {}", step, max_step_);
  options_.step = step;
}

}  // namespace triforce
