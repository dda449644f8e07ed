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
  lanes_[static_cast<std::size_t>(lane)].tokens.assign(prefix.begin(), prefix.end());
}

void WindowScorer::feed(std::span<const LaneFeed> feeds) {
  const PhaseTimer::Scope scope(timer_, pass_phase_);
  for (const LaneFeed& f : feeds) {
    const auto wanted = static_cast<std::size_t>(f.probs.shape[0]);
    TF_CHECK(wanted >= 1 && wanted <= f.tokens.size(), "{} probs of {} tokens", wanted,
             f.tokens.size());
    Lane& lane = lanes_[static_cast<std::size_t>(f.lane)];
    lane.tokens.insert(lane.tokens.end(), f.tokens.begin(), f.tokens.end());
    for (std::size_t row = 0; row < wanted; ++row) {
      const auto read =
          std::span<const Token>(lane.tokens).first(lane.tokens.size() - wanted + row + 1);
      const TensorView logits =
          read_anew(model_, *lane.cache, read.last(std::min(window_, read.size())));
      const PhaseTimer::Scope sampling(timer_, Phase::kSampling);
      backend_.to_probs(logits, sampling_, f.probs.rows(static_cast<std::int64_t>(row), 1));
    }
  }
}

void WindowScorer::record_passes(std::int64_t /*tokens*/, std::int64_t /*probs*/) {
  const std::vector<Token> any(window_);
  for (const Lane& lane : lanes_) {
    const std::size_t most = most_rows(model_, *lane.cache);
    const auto record = [&](std::size_t rows, Logits want) {
      if (throughput_path(static_cast<std::int64_t>(rows)) != RowPath::kInvariant) return;
      const PassPart part{std::span(any).first(rows), lane.cache};
      model_.record_pass(std::span(&part, 1), want);
    };
    const std::size_t longest = std::min(window_, max_tokens_);
    for (auto read = std::min(window_, lane.tokens.size() + 1); read <= longest; ++read) {
      if (read > most) record(most, Logits::kNone);
      record((read - 1) % most + 1, Logits::kLast);
    }
  }
}

void WindowScorer::truncate(int lane, std::int64_t length) {
  TF_CHECK(length >= 0 && length <= this->length(lane), "truncate to {} of {}", length,
           this->length(lane));
  lanes_[static_cast<std::size_t>(lane)].tokens.resize(static_cast<std::size_t>(length));
}

}  // namespace triforce
