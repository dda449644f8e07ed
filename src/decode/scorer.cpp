#include <algorithm>

#include "triforce/speculate.h"

namespace triforce {

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

void ModelScorer::feed(std::span<const Token> tokens, TensorView probs) {
  const auto n = static_cast<std::int64_t>(tokens.size());
  const std::int64_t wanted = probs.shape[0];
  TF_CHECK(wanted >= 1 && wanted <= n, "{} probs of {} tokens", wanted, n);
  const PhaseTimer::Scope scope(timer_, pass_phase_);
  for (std::int64_t begin = 0; begin < n;) {
    const std::int64_t rows =
        std::min<std::int64_t>({n - begin, kMaxBatchInvariantRows, cache_.max_append()});
    const std::int64_t end = begin + rows;
    const std::int64_t first_wanted = std::max(begin, n - wanted);
    const std::int64_t probs_here = std::max<std::int64_t>(end - first_wanted, 0);
    const Logits want = probs_here == 0   ? Logits::kNone
                        : probs_here == 1 ? Logits::kLast
                                          : Logits::kAll;
    const TensorView logits = model_.forward(
        tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows)), cache_,
        want, observer_);
    if (probs_here > 0) {
      const PhaseTimer::Scope sampling(timer_, Phase::kSampling);
      backend_.to_probs(logits.rows(logits.shape[0] - probs_here, probs_here), sampling_,
                        probs.rows(first_wanted - (n - wanted), probs_here));
    }
    begin = end;
  }
}

void ModelScorer::commit(std::int64_t length) {
  const PhaseTimer::Scope scope(timer_, Phase::kCacheUpdate);
  cache_.commit(length);
}

}  // namespace triforce
