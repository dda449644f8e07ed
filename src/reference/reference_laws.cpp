// Laws in double; chance and the accept/reject rule are sampling.h's.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "reference/reference_impl.h"
#include "triforce/sampling.h"

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
std::vector<double> ranked_law(const TensorView& logits, std::int64_t row,
                               const std::vector<std::int64_t>& ids, const LawParams& params) {
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

LawRows rows_of(const TensorView& laws) {
  TF_CHECK(laws.rank == 2 && laws.dtype == DType::kF32);
  return {laws.as<float>(), laws.shape[1], laws.stride[0]};
}

}  // namespace

void ReferenceBackend::to_laws(TensorView logits, const LawParams& params, TensorView laws) {
  TF_CHECK(logits.rank == 2 && laws.rank == 2 && laws.dtype == DType::kF32 &&
           logits.shape == laws.shape);
  TF_CHECK(params.top_p > 0, "top_p {}", params.top_p);
  const std::int64_t vocab = logits.shape[1];
  for (std::int64_t t = 0; t < logits.shape[0]; ++t) {
    bool finite = true;
    for (std::int64_t i = 0; i < vocab; ++i) finite = finite && std::isfinite(at(logits, t, i));
    for (std::int64_t i = 0; i < vocab; ++i) set(laws, t, i, finite ? 0 : NAN);
    if (!finite) continue;
    const std::vector<std::int64_t> ids = ranking(logits, t);
    const std::vector<double> p = ranked_law(logits, t, ids, params);
    for (std::size_t i = 0; i < p.size(); ++i) set(laws, t, ids[i], p[i]);
  }
}

Token ReferenceBackend::sample(TensorView law, const DrawKey& key, std::int64_t position,
                               Acceptance acceptance) {
  TF_CHECK(law.dtype == DType::kF32);
  return sample_token({law.as<float>(), static_cast<std::size_t>(law.numel())}, key, position,
                      acceptance);
}

Verdict ReferenceBackend::judge(TensorView p, TensorView q, std::span<const Token> tokens,
                                const DrawKey& key, std::int64_t position, const JudgeRule& rule) {
  const auto n = static_cast<std::int64_t>(tokens.size());
  TF_CHECK(p.shape[0] == n + 1 && (n == 0 || (q.shape[0] == n && q.shape[1] == p.shape[1])));
  return judge_proposals(rows_of(p), n == 0 ? LawRows{} : rows_of(q), tokens, key, position, rule);
}

}  // namespace triforce::reference
