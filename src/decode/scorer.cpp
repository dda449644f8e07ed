// Tests: tests/decode/engine_test.cpp, tests/decode/lanes_test.cpp
#include "triforce/scorer.h"

#include <algorithm>
#include <utility>

#include "decode/lane_passes.h"

namespace triforce {
namespace {

// Capacity that spares the loop any allocation: a round of the largest gammas on both levels.
constexpr std::size_t kReserve = 256;

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

// f(first, row, n): of the wanted probs of a feed, [first, first + n) go to rows from `row` on; of
// those in [begin, begin + count).
template <class F>
void for_each_run(const LaneFeed& feed, std::int64_t begin, std::int64_t count, const F& f) {
  if (feed.rows.empty()) return f(begin, begin, count);
  const auto row = [&](std::int64_t i) { return feed.rows[static_cast<std::size_t>(i)]; };
  for (std::int64_t i = begin, n = 1; i < begin + count; i += n) {
    for (n = 1; i + n < begin + count && row(i + n) == row(i) + n;) ++n;
    f(i, std::int64_t{row(i)}, n);
  }
}

}  // namespace

ModelScorer::ModelScorer(Backend& backend, LlamaModel& model, std::vector<LaneCache> lanes,
                         const SamplingParams& sampling, PhaseTimer& timer, Phase pass_phase,
                         Precision precision)
    : backend_(backend),
      model_(model),
      lanes_(std::move(lanes)),
      of_lanes_(lanes_.size()),
      sampling_(sampling),
      timer_(timer),
      pass_phase_(pass_phase),
      precision_(precision) {
  TF_CHECK(!lanes_.empty());
  for (std::size_t l = 0; l < lanes_.size(); ++l) of_lanes_[l].lane = static_cast<int>(l);
  parts_.reserve(lanes_.size());
  made_.reserve(static_cast<std::size_t>(model.max_logits()));
}

void ModelScorer::feed(std::span<const LaneFeed> feeds) {
  const PhaseTimer::Scope scope(timer_, pass_phase_);
  for (LaneFeed& f : of_lanes_) f = {f.lane, {}, {}};
  const std::int64_t max_rows = model_.max_logits(), max_append = cache(0).max_append();
  std::int64_t most = 0;
  for (const LaneFeed& f : feeds) {
    const auto n = std::ssize(f.tokens);
    TF_CHECK(f.wanted() >= 1 && f.wanted() <= n, "{} probs of {} tokens", f.wanted(), n);
    TF_CHECK(f.parents.empty() || n <= std::min(max_rows, max_append),
             "a tree in {} tokens, at most {} in a pass", n, std::min(max_rows, max_append));
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
      const Share share = share_of(f.tokens, f.wanted(), pass);
      const LaneCache& lane = lanes_[static_cast<std::size_t>(f.lane)];
      parts_.push_back({share.tokens, lane.cache, lane.observer, f.parents});
      tokens = std::max(tokens, std::ssize(share.tokens));
      probs = std::max(probs, share.probs);
    }
    if (tokens == 0) return;
    const TensorView logits =
        model_.forward(parts_, want_of(probs), RowPath::kInvariant, precision_);
    if (probs == 0) return;
    const PhaseTimer::Scope sampling(timer_, Phase::kSampling);
    const std::int64_t each = logits.shape[0] / pass.lanes;
    std::int64_t end = 0;  // of the lane's rows
    made_.clear();
    for (const LaneFeed& f : of_pass) {
      const Share share = share_of(f.tokens, f.wanted(), pass);
      end += each;
      const std::int64_t before = end - share.probs - share.first_probs;
      for_each_run(f, share.first_probs, share.probs, [&](auto first, auto row, auto n) {
        if (n > 0) made_.push_back({logits.rows(before + first, n), f.probs.rows(row, n)});
        if (n > 0 && f.logits.data != nullptr) {
          backend_.copy(f.logits.rows(row, n), made_.back().logits);
        }
      });
    }
    backend_.to_probs(made_, sampling_);
  };
  for_each_lane_pass(static_cast<int>(taking_part.size()), most, max_rows, max_append, feed_pass);
}

void ModelScorer::record_passes(std::int64_t tokens, std::int64_t probs, std::int64_t tree_tokens) {
  const std::vector<Token> any(static_cast<std::size_t>(tokens));
  const std::vector<std::int16_t> parents(static_cast<std::size_t>(tree_tokens), -1);
  const auto record = [&](const LanePass& pass) {
    const Share share = share_of(any, probs, pass);
    parts_.clear();
    for (int l = 0; l < pass.lanes; ++l) {
      parts_.push_back({share.tokens, &cache(pass.first_lane + l), nullptr, parents});
    }
    model_.record_pass(parts_, want_of(share.probs), precision_);
  };
  for_each_lane_pass(lanes(), tokens, model_.max_logits(), cache(0).max_append(), record);
}

void ModelScorer::keep(int lane, std::int64_t length, std::span<const std::int16_t> path) {
  const PhaseTimer::Scope scope(timer_, Phase::kCacheUpdate);
  cache(lane).keep(length, path);
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
  for (auto* v : {&tree_, &path_}) {
    v->reserve(kMaxTreeRows);
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
  const std::size_t chain = fed_.size() - tree_.size(), common = std::min(chain, tokens_.size());
  const auto end = fed_.begin() + static_cast<std::ptrdiff_t>(common);
  const auto stale = std::mismatch(fed_.begin(), end, tokens_.begin()).first;
  auto kept = static_cast<std::size_t>(stale - fed_.begin());
  if (tree_.empty() || kept < chain) {
    scorer_->truncate(lane_, base_ + static_cast<std::int64_t>(kept));
  } else {
    // Siblings differ, so that no more than one path is what the sequence goes on with.
    path_.clear();
    for (std::size_t i = 0, last = 0; i < tree_.size() && kept < tokens_.size(); ++i) {
      const bool follows = path_.empty() ? tree_[i] < 0 : std::cmp_equal(tree_[i], last);
      if (!follows || fed_[chain + i] != tokens_[kept]) continue;
      path_.push_back(static_cast<std::int16_t>(i));
      fed_[kept] = tokens_[kept];
      ++kept;
      last = i;
    }
    scorer_->keep(lane_, base_ + static_cast<std::int64_t>(chain), path_);
  }
  fed_.resize(kept);
  tree_.clear();
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

LaneFeed Sequence::score(std::span<const Token> guess, std::span<const std::int16_t> parents,
                         TensorView probs) {
  drop_stale();
  // The distribution after the last token of the sequence is needed, so that token is fed (again).
  const auto keep = std::min(fed_.size(), tokens_.size() - 1);
  fed_.resize(keep);
  scorer_->truncate(lane_, base_ + static_cast<std::int64_t>(keep));
  input_.assign(tokens_.begin() + static_cast<std::ptrdiff_t>(keep), tokens_.end());
  input_.insert(input_.end(), guess.begin(), guess.end());
  fed_.insert(fed_.end(), input_.begin(), input_.end());
  tree_.assign(parents.begin(), parents.end());
  return {lane_, input_, probs, tree_};
}

LaneFeed Sequence::score_next(std::span<const Token> guess, std::span<const std::int16_t> parents,
                              TensorView probs) {
  input_.assign(guess.begin(), guess.end());
  fed_.insert(fed_.end(), guess.begin(), guess.end());
  tree_.assign(parents.begin(), parents.end());
  return {lane_, input_, probs, tree_};
}

}  // namespace triforce
