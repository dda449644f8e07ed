#include "kernels/kernels.h"

#include <algorithm>

#include "kernels/launch.cuh"
#include "kernels/reduce.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 256;

// sampling.h: a distribution whose logits were not finite is NaN as a whole.
TF_DEVICE bool is_finite(const float* probs) { return probs[0] == probs[0]; }

// What one draw needs of shared memory.
struct Scratch {
  double sums[kThreads];
  double times[kThreads];
  std::int32_t ids[kThreads];
  std::int32_t chosen;
  std::int32_t result;
};

struct ByProbs {
  const float* probs;
  TF_DEVICE double operator()(std::int64_t i) const { return static_cast<double>(probs[i]); }
};
struct ByResidual {
  const float *p, *q;
  TF_DEVICE double operator()(std::int64_t i) const {
    const double rest = static_cast<double>(p[i]) - static_cast<double>(q[i]);
    return rest > 0 ? rest : 0.0;
  }
};

// An id with probability weight(id) / sum, by inverse transform in id order; -1 if nothing weighs.
// Thread t holds ids [t share, (t + 1) share).
template <class Weight>
TF_DEVICE std::int32_t categorical(const Weight& weight, std::int64_t vocab, double uniform,
                                   Scratch* scratch) {
  const int me = static_cast<int>(threadIdx.x);
  const std::int64_t share = (vocab + kThreads - 1) / kThreads;
  const std::int64_t begin = me * share < vocab ? me * share : vocab;
  const std::int64_t end = begin + share < vocab ? begin + share : vocab;
  double mine = 0;
  std::int32_t last = -1;  // rounding may leave the total just short of the target
  for (std::int64_t i = begin; i < end; ++i) {
    const double w = weight(i);
    if (w > 0) last = static_cast<std::int32_t>(i);
    mine += w;
  }
  __syncthreads();
  scratch->sums[me] = mine;
  scratch->ids[me] = last;
  __syncthreads();
  double total = 0, before = 0;
  std::int32_t latest = -1;
  for (int t = 0; t < kThreads; ++t) {
    if (t == me) before = total;
    total += scratch->sums[t];
    latest = max(latest, scratch->ids[t]);
  }
  if (me == 0) scratch->chosen = latest;
  __syncthreads();
  const double target = uniform * total;
  if (before <= target && target < before + mine) {
    double sum = before;
    for (std::int64_t i = begin; i < end; ++i) {
      const double w = weight(i);
      sum += w;
      if (w > 0 && (sum > target || i == last)) {
        scratch->chosen = static_cast<std::int32_t>(i);
        break;
      }
    }
  }
  __syncthreads();
  return scratch->chosen;
}

// sampling.h: coupled_token().
TF_DEVICE std::int32_t race(const float* probs, std::int64_t vocab, const DrawKey& key,
                            std::int64_t position, Scratch* scratch) {
  const int me = static_cast<int>(threadIdx.x);
  double best = INFINITY;
  std::int32_t id = -1;
  for (std::int64_t i = me; i < vocab; i += kThreads) {
    if (!(probs[i] > 0)) continue;
    const double u = philox_token_uniform(
        key.seed, key.prompt, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(i));
    const double time = -log(u) / static_cast<double>(probs[i]);
    if (time < best) {
      best = time;
      id = static_cast<std::int32_t>(i);
    }
  }
  __syncthreads();
  scratch->times[me] = best;
  scratch->ids[me] = id;
  __syncthreads();
  for (int t = 0; t < kThreads; ++t) {
    const double time = scratch->times[t];
    const std::int32_t other = scratch->ids[t];
    if (other >= 0 && (time < best || (time == best && other < id) || id < 0)) {
      best = time;
      id = other;
    }
  }
  return id;
}

// sampling.h: sample_with().
TF_DEVICE std::int32_t sample_row(const float* probs, std::int64_t vocab, const DrawKey& key,
                                  std::int64_t position, Acceptance acceptance, Purpose purpose,
                                  Scratch* scratch) {
  if (!is_finite(probs)) return -1;
  if (acceptance == Acceptance::kCoupled) return race(probs, vocab, key, position, scratch);
  const double u = philox_uniform(key, purpose, static_cast<std::uint32_t>(position));
  return categorical(ByProbs{probs}, vocab, u, scratch);
}

__global__ void __launch_bounds__(kThreads)
    sample_kernel(const float* probs, std::int64_t vocab, DrawKey key, std::int64_t position,
                  Acceptance acceptance, VerifyResult* out) {
  TF_SHARED(Scratch, scratch);
  const std::int32_t token =
      sample_row(probs, vocab, key, position, acceptance, Purpose::kPropose, scratch);
  if (threadIdx.x == 0) *out = VerifyResult{0, token};
}

struct Proposals {
  Token tokens[kMaxProposals];
  int count;
};
// VerifyRule without its optional, which device code does not know.
struct Rule {
  Acceptance acceptance;
  Correction correction;
  bool synthetic;
  double rate;
};

// sampling.h: verify_with(), step by step; every thread takes the same way.
TF_DEVICE VerifyResult verify_all(const float* p, std::int64_t p_stride, const float* q,
                                  std::int64_t q_stride, std::int64_t vocab,
                                  const Proposals& proposals, const DrawKey& key,
                                  std::int64_t position, const Rule& rule, Scratch* scratch) {
  std::int32_t i = 0;
  for (; i < proposals.count; ++i) {
    const float* const pi = p + i * p_stride;
    const std::int64_t at = position + i;
    const Token t = proposals.tokens[i];
    if (!is_finite(pi)) return {i, -1};
    const auto word = static_cast<std::uint32_t>(at);
    if (rule.synthetic) {
      if (philox_uniform(key, Purpose::kSynthetic, word) < rule.rate) continue;
      return {i, sample_row(pi, vocab, key, at, rule.acceptance, Purpose::kCorrect, scratch)};
    }
    if (rule.acceptance == Acceptance::kCoupled) {
      const std::int32_t next = race(pi, vocab, key, at, scratch);
      if (next == t) continue;
      return {i, next};
    }
    const float* const qi = q + i * q_stride;
    if (!is_finite(qi)) return {i, -1};
    const double ratio = static_cast<double>(pi[t]) / static_cast<double>(qi[t]);
    if (philox_uniform(key, Purpose::kAccept, word) < (ratio < 1.0 ? ratio : 1.0)) continue;
    if (rule.correction == Correction::kResidual) {
      const double u = philox_uniform(key, Purpose::kCorrect, word);
      const std::int32_t next = categorical(ByResidual{pi, qi}, vocab, u, scratch);
      if (next >= 0) return {i, next};
    }
    const Acceptance acceptance =
        rule.correction == Correction::kResidual ? Acceptance::kSpeculative : rule.acceptance;
    return {i, sample_row(pi, vocab, key, at, acceptance, Purpose::kCorrect, scratch)};
  }
  return {i, sample_row(p + i * p_stride, vocab, key, position + i, rule.acceptance,
                        Purpose::kCorrect, scratch)};
}

__global__ void __launch_bounds__(kThreads)
    verify_kernel(const float* p, std::int64_t p_stride, const float* q, std::int64_t q_stride,
                  std::int64_t vocab, Proposals proposals, DrawKey key, std::int64_t position,
                  Rule rule, VerifyResult* out) {
  TF_SHARED(Scratch, scratch);
  const VerifyResult v =
      verify_all(p, p_stride, q, q_stride, vocab, proposals, key, position, rule, scratch);
  if (threadIdx.x == 0) *out = v;
}

}  // namespace

void sample(const TensorView& probs, const DrawKey& key, std::int64_t position,
            Acceptance acceptance, VerifyResult* out, cudaStream_t stream) {
  launch(sample_kernel, dims(1), dims(kThreads), sizeof(Scratch), stream,
         static_cast<const float*>(probs.data), probs.numel(), key, position, acceptance, out);
}

void verify(const TensorView& p, const TensorView& q, std::span<const Token> tokens,
            const DrawKey& key, std::int64_t position, const VerifyRule& rule, VerifyResult* out,
            cudaStream_t stream) {
  const auto n = static_cast<std::int64_t>(tokens.size());
  Proposals proposals{};
  proposals.count = static_cast<int>(n);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    proposals.tokens[i] = tokens[i];
  }
  const Rule plain{rule.acceptance, rule.correction, rule.synthetic_rate.has_value(),
                   rule.synthetic_rate.value_or(0.0)};
  launch(verify_kernel, dims(1), dims(kThreads), sizeof(Scratch), stream,
         static_cast<const float*>(p.data), p.stride[0],
         n == 0 ? nullptr : static_cast<const float*>(q.data),
         n == 0 ? std::int64_t{0} : q.stride[0], p.shape[1], proposals, key, position, plain, out);
}

}  // namespace triforce::kernels
