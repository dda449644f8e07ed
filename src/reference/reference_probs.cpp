// Probs in double.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "reference/reference_impl.h"

namespace triforce::reference {
namespace {

// Ids by falling logit, lower id first among equals.
std::vector<std::int64_t> ranking(const TensorView& logits, std::int64_t row) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(logits.shape[1]));
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](std::int64_t a, std::int64_t b) {
    return at(logits, row, a) > at(logits, row, b);
  });
  return ids;
}

// Probability of each rank: softmax at the temperature over the top k, then the smallest set of
// leading ranks whose probability reaches top_p, renormalised.
std::vector<double> ranked_probs(const TensorView& logits, std::int64_t row,
                                 const std::vector<std::int64_t>& ids,
                                 const SamplingParams& params) {
  std::size_t kept = ids.size();
  if (params.temperature <= 0) {
    kept = 1;
  } else if (params.top_k > 0) {
    kept = std::min(kept, static_cast<std::size_t>(params.top_k));
  }
  const double temperature = params.temperature > 0 ? static_cast<double>(params.temperature) : 1.0;
  std::vector<double> p(kept);
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    p[i] = std::exp((at(logits, row, ids[i]) - at(logits, row, ids[0])) / temperature);
    total += p[i];
  }
  if (params.top_p < 1) {
    double sum = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      sum += p[i];
      if (sum >= static_cast<double>(params.top_p) * total) kept = i + 1;
    }
    p.resize(kept);
    total = std::accumulate(p.begin(), p.end(), 0.0);
  }
  for (double& x : p) x /= total;
  return p;
}

}  // namespace

void ReferenceBackend::do_to_probs(TensorView logits, const SamplingParams& params,
                                   TensorView probs) {
  const std::int64_t vocab = logits.shape[1];
  for (std::int64_t t = 0; t < logits.shape[0]; ++t) {
    bool finite = true;
    for (std::int64_t i = 0; i < vocab; ++i) finite = finite && std::isfinite(at(logits, t, i));
    for (std::int64_t i = 0; i < vocab; ++i) set(probs, t, i, finite ? 0 : NAN);
    if (!finite) continue;
    const std::vector<std::int64_t> ids = ranking(logits, t);
    const std::vector<double> p = ranked_probs(logits, t, ids, params);
    for (std::size_t i = 0; i < p.size(); ++i) set(probs, t, ids[i], p[i]);
  }
}

}  // namespace triforce::reference
