#include "decode/window_scorer.h"

#include <algorithm>

namespace triforce {

TensorView read_anew(LlamaModel& model, KvCache& cache, std::span<const Token> tokens) {
  TF_CHECK(!tokens.empty());
  cache.reset();
  const auto rows = static_cast<std::size_t>(std::min(model.max_rows(), cache.max_append()));
  for (; tokens.size() > rows; tokens = tokens.subspan(rows)) {
    model.forward(tokens.first(rows), cache, Logits::kNone);
    cache.commit(cache.length());
  }
  return model.forward(tokens, cache, Logits::kLast);
}

WindowScorer::WindowScorer(Backend& backend, LlamaModel& model, KvCache& cache, std::int64_t window,
                           std::int64_t max_tokens, const SamplingParams& sampling,
                           PhaseTimer& timer, Phase pass_phase)
    : backend_(backend),
      model_(model),
      cache_(cache),
      window_(static_cast<std::size_t>(window)),
      sampling_(sampling),
      timer_(timer),
      pass_phase_(pass_phase) {
  TF_CHECK(window >= 1, "a window of {} tokens", window);
  tokens_.reserve(static_cast<std::size_t>(max_tokens));  // rounds do not allocate
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

void WindowScorer::truncate(std::int64_t length) {
  TF_CHECK(length >= 0 && length <= this->length(), "truncate to {} of {}", length, this->length());
  tokens_.resize(static_cast<std::size_t>(length));
}

}  // namespace triforce
