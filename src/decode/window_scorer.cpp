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

WindowScorer::WindowScorer(Backend& backend, LlamaModel& model, KvCache& cache, std::int64_t window,
                           std::int64_t max_tokens, const SamplingParams& sampling,
                           PhaseTimer& timer, Phase pass_phase)
    : backend_(backend),
      model_(model),
      cache_(cache),
      window_(static_cast<std::size_t>(window)),
      max_tokens_(static_cast<std::size_t>(max_tokens)),
      sampling_(sampling),
      timer_(timer),
      pass_phase_(pass_phase) {
  TF_CHECK(window >= 1, "a window of {} tokens", window);
  tokens_.reserve(max_tokens_);  // rounds do not allocate
}

void WindowScorer::start(std::span<const Token> prefix) {
  tokens_.assign(prefix.begin(), prefix.end());
}

void WindowScorer::feed(std::span<const Token> tokens, TensorView probs) {
  const auto wanted = static_cast<std::size_t>(probs.shape[0]);
  TF_CHECK(wanted >= 1 && wanted <= tokens.size(), "{} probs of {} tokens", wanted, tokens.size());
  const PhaseTimer::Scope scope(timer_, pass_phase_);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  for (std::size_t row = 0; row < wanted; ++row) {
    const auto read = std::span<const Token>(tokens_).first(tokens_.size() - wanted + row + 1);
    const TensorView logits = read_anew(model_, cache_, read.last(std::min(window_, read.size())));
    const PhaseTimer::Scope sampling(timer_, Phase::kSampling);
    backend_.to_probs(logits, sampling_, probs.rows(static_cast<std::int64_t>(row), 1));
  }
}

void WindowScorer::record_passes(std::span<const Token> tokens, std::int64_t /*probs*/) {
  const std::size_t most = most_rows(model_, cache_);
  const std::vector<Token> any(most, tokens.front());
  const auto record = [&](std::size_t rows, Logits want) {
    if (throughput_path(static_cast<std::int64_t>(rows)) != RowPath::kInvariant) return;
    model_.record_pass(std::span(any).first(rows), cache_, want);
  };
  const std::size_t longest = std::min(window_, max_tokens_);
  for (auto read = std::min(window_, tokens_.size() + 1); read <= longest; ++read) {
    if (read > most) record(most, Logits::kNone);
    record((read - 1) % most + 1, Logits::kLast);
  }
}

void WindowScorer::truncate(std::int64_t length) {
  TF_CHECK(length >= 0 && length <= this->length(), "truncate to {} of {}", length, this->length());
  tokens_.resize(static_cast<std::size_t>(length));
}

}  // namespace triforce
