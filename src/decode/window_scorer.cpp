#include "decode/window_scorer.h"

#include <algorithm>

namespace triforce {

namespace {

// Of a pass.
std::size_t most_rows(const LlamaModel& model, const KvCache& cache) {
  return static_cast<std::size_t>(std::min(model.max_rows(), cache.max_append()));
}

}  // namespace

TensorView read_anew(LlamaModel& model, KvCache& cache, std::span<const Token> tokens) {
  TF_CHECK(!tokens.empty());
  cache.reset();
  const std::size_t rows = most_rows(model, cache);
  for (; tokens.size() > rows; tokens = tokens.subspan(rows)) {
    model.forward(tokens.first(rows), cache, Logits::kNone, nullptr,
                  throughput_path(static_cast<std::int64_t>(rows)));
    cache.commit(cache.length());
  }
  return model.forward(tokens, cache, Logits::kLast, nullptr,
                       throughput_path(static_cast<std::int64_t>(tokens.size())));
}

WindowScorer::WindowScorer(Backend& backend, LlamaModel& model, std::span<const LaneCache> lanes,
                           std::int64_t window, std::int64_t max_tokens,
                           const SamplingParams& sampling, PhaseTimer& timer, Phase pass_phase)
    : backend_(backend),
      model_(model),
      window_(static_cast<std::size_t>(window)),
      max_tokens_(static_cast<std::size_t>(max_tokens)),
      sampling_(sampling),
      timer_(timer),
      pass_phase_(pass_phase) {
  TF_CHECK(window >= 1, "a window of {} tokens", window);
  for (const LaneCache& lane : lanes) {
    lanes_.push_back({lane.cache, {}});
    lanes_.back().tokens.reserve(max_tokens_);  // rounds do not allocate
  }
}

void WindowScorer::start(int lane, std::span<const Token> prefix) {
  lane_at(lane).tokens.assign(prefix);
}

void WindowScorer::feed(std::span<const LaneFeed> feeds) {
  const PhaseTimer::Scope scope(timer_, pass_phase_);
  for (const LaneFeed& f : feeds) {
    const std::int64_t wanted = f.wanted();
    TF_CHECK(wanted >= 1 && wanted <= std::ssize(f.tokens), "{} probs of {} tokens", wanted,
             f.tokens.size());
    Lane& lane = lane_at(f.lane);
    lane.tokens.append(f);
    for (std::int64_t i = 0; i < wanted; ++i) {
      const std::int64_t row = f.rows.empty() ? i : f.rows[static_cast<std::size_t>(i)];
      const auto read = lane.tokens.up_to(lane.tokens.length() - wanted + i);
      const TensorView logits =
          read_anew(model_, *lane.cache, read.last(std::min(window_, read.size())));
      const PhaseTimer::Scope sampling(timer_, Phase::kSampling);
      backend_.to_probs(logits, sampling_, f.probs.rows(row, 1));
      if (f.logits.data != nullptr) backend_.copy(f.logits.rows(row, 1), logits);
    }
  }
}

void WindowScorer::record_passes(std::int64_t /*tokens*/, std::int64_t /*probs*/,
                                 std::int64_t /*tree_tokens*/) {
  const std::vector<Token> any(window_);
  for (const Lane& lane : lanes_) {
    const std::size_t most = most_rows(model_, *lane.cache);
    const auto record = [&](std::size_t rows, Logits want) {
      if (throughput_path(static_cast<std::int64_t>(rows)) != RowPath::kInvariant) return;
      const PassPart part{std::span(any).first(rows), lane.cache};
      model_.record_pass(std::span(&part, 1), want, Precision::kOwn);
    };
    const std::size_t longest = std::min(window_, max_tokens_);
    const auto held = static_cast<std::size_t>(lane.tokens.length());
    for (auto read = std::min(window_, held + 1); read <= longest; ++read) {
      if (read > most) record(most, Logits::kNone);
      record((read - 1) % most + 1, Logits::kLast);
    }
  }
}

}  // namespace triforce
