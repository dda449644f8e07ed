#include "kernels/draw.cuh"

#include "kernels/kernels.h"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 512;

// sampling.h: a distribution whose logits were not finite is NaN as a whole.
TF_DEVICE bool is_finite(const float* probs) { return probs[0] == probs[0]; }

// What a verification needs of shared memory: of each proposed token its probabilities, and those
// of id 0, which tell what is finite.
struct VerifyScratch {
  float p_token[kMaxProposals], q_token[kMaxProposals], q_first[kMaxProposals],
      p_first[kMaxProposals + 1];
  DrawScratch draw;  // ends with as many sums as there is room for
};

__global__ void __launch_bounds__(kThreads, 1)
    sample_kernel(const float* probs, int vocab, DrawKey key, std::int64_t position,
                  Acceptance acceptance, VerifyResult* out) {
  TF_SHARED(DrawScratch, scratch);
  std::int32_t token = -1;
  if (is_finite(probs)) {
    token = draw({probs, nullptr}, vocab, key, position, acceptance == Acceptance::kCoupled,
                 Purpose::kPropose, scratch);
  }
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

// sampling.h: verify_with(), step by step; every thread takes the same way. One place draws, so
// that its code is there once.
TF_DEVICE VerifyResult verify_all(const float* p, std::int64_t p_stride, const float* q,
                                  std::int64_t q_stride, int vocab, const Proposals& proposals,
                                  const DrawKey& key, std::int64_t position, const Rule& rule,
                                  VerifyScratch* scratch) {
  const bool coupled = rule.acceptance == Acceptance::kCoupled;
  bool residual = false;  // of the row where a proposal was rejected
  for (std::int32_t i = 0;;) {
    const float* const pi = p + i * p_stride;
    const auto word = static_cast<std::uint32_t>(position + i);
    const bool proposed = i < proposals.count;
    if (!is_finite(&scratch->p_first[i])) return {i, -1};
    if (proposed && rule.synthetic) {
      if (philox_uniform(key, Purpose::kSynthetic, word) < rule.rate) {
        ++i;
        continue;
      }
    } else if (proposed && !coupled) {
      if (!is_finite(&scratch->q_first[i])) return {i, -1};
      const double ratio =
          static_cast<double>(scratch->p_token[i]) / static_cast<double>(scratch->q_token[i]);
      if (philox_uniform(key, Purpose::kAccept, word) < (ratio < 1.0 ? ratio : 1.0)) {
        ++i;
        continue;
      }
      residual = rule.correction == Correction::kResidual;
    }
    for (;;) {
      const std::int32_t next = draw({pi, residual ? q + i * q_stride : nullptr}, vocab, key,
                                     position + i, coupled, Purpose::kCorrect, &scratch->draw);
      if (next >= 0 || !residual) {
        if (!proposed || rule.synthetic || !coupled || next != proposals.tokens[i])
          return {i, next};
        break;
      }
      residual = false;  // nothing is left of it
    }
    ++i;
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    verify_kernel(const float* p, std::int64_t p_stride, const float* q, std::int64_t q_stride,
                  int vocab, Proposals proposals, DrawKey key, std::int64_t position, Rule rule,
                  VerifyResult* out) {
  TF_SHARED(VerifyScratch, scratch);
  const auto i = static_cast<int>(threadIdx.x);
  if (i <= proposals.count) scratch->p_first[i] = p[i * p_stride];
  if (i < proposals.count) {
    const float *const pi = p + i * p_stride, *const qi = q + i * q_stride;
    const Token t = proposals.tokens[i];
    scratch->p_token[i] = pi[t];
    scratch->q_token[i] = q == nullptr ? NAN : qi[t];
    scratch->q_first[i] = q == nullptr ? NAN : qi[0];
  }
  __syncthreads();
  const VerifyResult v =
      verify_all(p, p_stride, q, q_stride, vocab, proposals, key, position, rule, scratch);
  if (threadIdx.x == 0) *out = v;
}

}  // namespace

void sample(const TensorView& probs, const DrawKey& key, std::int64_t position,
            Acceptance acceptance, VerifyResult* out, cudaStream_t stream) {
  const auto vocab = static_cast<int>(probs.numel());
  launch(sample_kernel, dims(1), dims(kThreads), draw_scratch_bytes(vocab), stream,
         static_cast<const float*>(probs.data), vocab, key, position, acceptance, out);
}

void verify(const TensorView& p, const TensorView& q, std::span<const Token> tokens,
            const DrawKey& key, std::int64_t position, const VerifyRule& rule, VerifyResult* out,
            cudaStream_t stream) {
  const auto n = static_cast<std::int64_t>(tokens.size());
  const auto vocab = static_cast<int>(p.shape[1]);
  Proposals proposals{};
  proposals.count = static_cast<int>(n);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    proposals.tokens[i] = tokens[i];
  }
  const Rule plain{rule.acceptance, rule.correction, rule.synthetic_rate.has_value(),
                   rule.synthetic_rate.value_or(0.0)};
  launch(verify_kernel, dims(1), dims(kThreads),
         sizeof(VerifyScratch) - sizeof(DrawScratch) + draw_scratch_bytes(vocab), stream,
         static_cast<const float*>(p.data), p.stride[0],
         n == 0 ? nullptr : static_cast<const float*>(q.data),
         n == 0 ? std::int64_t{0} : q.stride[0], vocab, proposals, key, position, plain, out);
}

}  // namespace triforce::kernels
