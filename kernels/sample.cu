#include "kernels/kernels.h"

#include <algorithm>

#include "kernels/launch.cuh"
#include "kernels/reduce.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
// Consecutive ids whose weights are summed by one warp.
constexpr int kChunk = 128;

// sampling.h: a distribution whose logits were not finite is NaN as a whole.
TF_DEVICE bool is_finite(const float* probs) { return probs[0] == probs[0]; }

// What one draw needs of shared memory.
struct Scratch {
  double times[kWarps];
  std::int32_t ids[kWarps];
  std::int32_t chosen;
  // Of each proposed token: its probabilities, and those of id 0, which tell what is finite.
  float p_token[kMaxProposals], q_token[kMaxProposals], q_first[kMaxProposals],
      p_first[kMaxProposals + 1];
  double sums[1];  // of every chunk: as many as scratch_bytes() leaves room for
};
std::size_t scratch_bytes(std::int64_t vocab) {
  return sizeof(Scratch) + static_cast<std::size_t>(ceil_div(vocab, kChunk)) * sizeof(double);
}

// Of an id: its probability, or where q is given the positive part of p - q.
struct Weight {
  const float *p, *q;
  TF_DEVICE double operator()(std::int64_t i) const {
    if (q == nullptr) return static_cast<double>(p[i]);
    const double rest = static_cast<double>(p[i]) - static_cast<double>(q[i]);
    return rest > 0 ? rest : 0.0;
  }
};

// The lane's ids of a chunk are lane, lane + 32, ...: each load of a warp is of neighbours.
TF_DEVICE void chunk_weights(const Weight& weight, std::int64_t vocab, std::int64_t chunk,
                             double (&w)[kChunk / 32]) {
  TF_UNROLL
  for (int k = 0; k < kChunk / 32; ++k) {
    const std::int64_t i = chunk * kChunk + k * 32 + threadIdx.x % 32;
    w[k] = i < vocab ? weight(i) : 0.0;
  }
}

// What the lanes before hold, and all of them, added in the order of lanes: such sums never fall.
struct Prefix {
  double before, all;
};
TF_DEVICE Prefix sums_in_order(double mine) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  Prefix out{0, 0};
  TF_UNROLL_N(4)
  for (int t = 0; t < 32; ++t) {
    if (t == lane) out.before = out.all;
    out.all += __shfl_sync(0xffffffffU, mine, t);
  }
  return out;
}

// The id in a chunk with which `before` and the weights up to it exceed `target`, its last one of
// positive weight if none does, -1 if it has none; by one warp.
TF_DEVICE std::int32_t choose_in(const Weight& weight, std::int64_t vocab, std::int64_t chunk,
                                 double before, double target) {
  double w[kChunk / 32];
  chunk_weights(weight, vocab, chunk, w);
  std::int32_t last = -1;
  TF_UNROLL
  for (int k = 0; k < kChunk / 32; ++k) {
    const auto first = static_cast<std::int32_t>(chunk * kChunk + k * 32);
    const Prefix sums = sums_in_order(w[k]);
    const unsigned positive = __ballot_sync(0xffffffffU, w[k] > 0 ? 1 : 0);
    const unsigned reach =
        __ballot_sync(0xffffffffU, w[k] > 0 && before + (sums.before + w[k]) > target ? 1 : 0);
    if (reach != 0) return first + __ffs(static_cast<int>(reach)) - 1;
    if (positive != 0) last = first + 31 - __clz(static_cast<int>(positive));
    before += sums.all;
  }
  return last;
}

// As above among all chunks, from their sums; by one warp, a lane for so many neighbours.
TF_DEVICE std::int32_t choose(const Weight& weight, std::int64_t vocab, double uniform,
                              const double* sums) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto chunks = static_cast<int>((vocab + kChunk - 1) / kChunk);
  const int share = (chunks + 31) / 32;
  const int begin = min(lane * share, chunks), end = min(begin + share, chunks);
  double mine = 0;
  for (int c = begin; c < end; ++c) mine += sums[c];
  const Prefix prefix = sums_in_order(mine);
  const double target = uniform * prefix.all;
  double before = prefix.before;
  int chunk = -1;  // rounding may leave the total just short of the target: the last that weighs
  double start = 0;
  bool reached = false;
  for (int c = begin; c < end && !reached; ++c) {
    if (!(sums[c] > 0)) continue;
    chunk = c;
    start = before;
    before += sums[c];
    reached = before > target;
  }
  const unsigned reach = __ballot_sync(0xffffffffU, reached ? 1 : 0);
  const unsigned any = __ballot_sync(0xffffffffU, chunk >= 0 ? 1 : 0);
  if (any == 0) return -1;
  const int from =
      reach != 0 ? __ffs(static_cast<int>(reach)) - 1 : 31 - __clz(static_cast<int>(any));
  return choose_in(weight, vocab, __shfl_sync(0xffffffffU, chunk, from),
                   __shfl_sync(0xffffffffU, start, from), target);
}

// An id with probability weight(id) / sum, by inverse transform in id order; -1 if nothing weighs.
TF_DEVICE std::int32_t categorical(const Weight& weight, std::int64_t vocab, double uniform,
                                   Scratch* scratch) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t chunks = (vocab + kChunk - 1) / kChunk;
  __syncthreads();  // scratch may still be read for the draw before
  TF_UNROLL_N(4)
  for (std::int64_t c = threadIdx.x / 32; c < chunks; c += kWarps) {
    double w[kChunk / 32];
    chunk_weights(weight, vocab, c, w);
    const double sum = warp_reduce((w[0] + w[1]) + (w[2] + w[3]), Add{});
    if (lane == 0) scratch->sums[c] = sum;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const std::int32_t id = choose(weight, vocab, uniform, scratch->sums);
    if (lane == 0) scratch->chosen = id;
  }
  __syncthreads();
  return scratch->chosen;
}

// sampling.h: coupled_token().
TF_DEVICE std::int32_t race(const float* probs, std::int64_t vocab, const DrawKey& key,
                            std::int64_t position, Scratch* scratch) {
  constexpr std::int32_t kNone = 0x7fffffff;
  double best = INFINITY;
  std::int32_t id = kNone;
  TF_UNROLL_N(2)
  for (std::int64_t i = threadIdx.x; i < vocab; i += kThreads) {
    const float prob = probs[i];
    if (!(prob > 0)) continue;
    const double u = philox_token_uniform(
        key.seed, key.prompt, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(i));
    const double time = -log(u) / static_cast<double>(prob);
    if (time < best || id == kNone) {
      best = time;
      id = static_cast<std::int32_t>(i);
    }
  }
  const double first = block_reduce(best, scratch->times, Min{});
  const std::int32_t won = block_reduce(best == first ? id : kNone, scratch->ids, Min{});
  return won == kNone ? -1 : won;
}

// sampling.h: sample_with() of finite probs; where q is given, from the residual by chance alone.
TF_DEVICE std::int32_t draw(const Weight& weight, std::int64_t vocab, const DrawKey& key,
                            std::int64_t position, bool coupled, Purpose purpose,
                            Scratch* scratch) {
  if (coupled) return race(weight.p, vocab, key, position, scratch);
  const double u = philox_uniform(key, purpose, static_cast<std::uint32_t>(position));
  return categorical(weight, vocab, u, scratch);
}

__global__ void __launch_bounds__(kThreads, 1)
    sample_kernel(const float* probs, std::int64_t vocab, DrawKey key, std::int64_t position,
                  Acceptance acceptance, VerifyResult* out) {
  TF_SHARED(Scratch, scratch);
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
                                  std::int64_t q_stride, std::int64_t vocab,
                                  const Proposals& proposals, const DrawKey& key,
                                  std::int64_t position, const Rule& rule, Scratch* scratch) {
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
                                     position + i, coupled, Purpose::kCorrect, scratch);
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
                  std::int64_t vocab, Proposals proposals, DrawKey key, std::int64_t position,
                  Rule rule, VerifyResult* out) {
  TF_SHARED(Scratch, scratch);
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
  launch(sample_kernel, dims(1), dims(kThreads), scratch_bytes(probs.numel()), stream,
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
  launch(verify_kernel, dims(1), dims(kThreads), scratch_bytes(p.shape[1]), stream,
         static_cast<const float*>(p.data), p.stride[0],
         n == 0 ? nullptr : static_cast<const float*>(q.data),
         n == 0 ? std::int64_t{0} : q.stride[0], p.shape[1], proposals, key, position, plain, out);
}

}  // namespace triforce::kernels
