// Drawing a token from probabilities, by one block: sampling.h with the same numbers from Philox.
#pragma once
#include <cstring>

#include "kernels/platform.cuh"
#include "kernels/ranks.cuh"
#include "kernels/reduce.cuh"
#include "triforce/random.h"

namespace triforce::kernels {

// Consecutive ids whose weights are summed by one warp, and such chunks that it sums at a time.
// With eight at a time sm_120 spills registers.
constexpr int kChunk = 128, kChunksAtOnce = 4;

// What draws need of shared memory; of blocks of up to 1024 threads.
struct DrawScratch {
  double times[32];
  std::uint64_t ranks[32];
  std::int32_t ids[32];
  std::int32_t chosen;
  double total;
  double sums[1];  // of every chunk: as many as draw_scratch_bytes() leaves room for
};
TF_HOST_DEVICE inline int chunks_of(int vocab) { return (vocab + kChunk - 1) / kChunk; }
TF_HOST_DEVICE inline std::size_t draw_scratch_bytes(int vocab) {
  return sizeof(DrawScratch) + static_cast<std::size_t>(chunks_of(vocab)) * sizeof(double);
}

// Ids that siblings have taken: a bit each, in shared memory behind the sums. One thread changes
// them, between draws.
class TakenIds {
 public:
  // Of whole chunks, and of those that are summed beside the last one.
  static std::size_t bytes(int vocab) {
    return static_cast<std::size_t>(words(vocab)) * sizeof(std::uint64_t);
  }
  TakenIds() = default;  // none, and none can be
  TF_DEVICE TakenIds(DrawScratch* scratch, int vocab, bool there)
      : words_(reinterpret_cast<std::uint64_t*>(scratch->sums + chunks_of(vocab))), there_(there) {}
  TF_DEVICE bool can_have_any() const { return there_; }
  // By all threads; the block then waits for itself.
  TF_DEVICE void clear(int vocab) const {
    if (!there_) return;
    for (int i = static_cast<int>(threadIdx.x); i < words(vocab); i += static_cast<int>(blockDim.x))
      words_[i] = 0;
  }
  TF_DEVICE void set(std::int32_t id) const {
    if (there_) words_[id / 64] |= std::uint64_t{1} << (id % 64);
  }
  TF_DEVICE void reset(std::int32_t id) const {
    if (there_) words_[id / 64] &= ~(std::uint64_t{1} << (id % 64));
  }
  // Of ids [64 i, 64 i + 64).
  TF_DEVICE std::uint64_t word(int i) const { return words_[i]; }
  TF_DEVICE bool has(int id) const { return there_ && (words_[id / 64] >> (id % 64) & 1) != 0; }

 private:
  TF_HOST_DEVICE static int words(int vocab) {
    return (chunks_of(vocab) + kChunksAtOnce - 1) * (kChunk / 64);
  }
  std::uint64_t* words_ = nullptr;
  bool there_ = false;
};

// static_cast<double>(p) of a finite p in [0, 2^63), in whole numbers: conversions run at the rate
// of f64, which is slow on some cards.
TF_DEVICE double widened(float p) {
  constexpr int kUp = 64;  // p 2^kUp is exact, and not subnormal
  const std::uint32_t bits = __float_as_uint(p * 0x1p64F);
  const std::uint32_t high = bits == 0 ? 0 : (bits >> 3) + ((1023U - 127U - kUp) << 20);
  const std::uint64_t both = std::uint64_t{high} << 32 | bits << 29;
  double out;
  memcpy(&out, &both, sizeof out);
  return out;
}

// Of an id that is not taken: its probability, or of a residual the positive part of p - share q.
struct Weight {
  const float *p, *q = nullptr;  // q: of a residual
  bool is_residual = false;
  double share = 0;
  TakenIds taken{};
  TF_DEVICE double operator()(int i) const {
    return rest(taken.has(i) ? 0.0F : p[i], is_residual ? q[i] : 0.0F);
  }
  // The same of loaded probabilities.
  TF_DEVICE double rest(float p_of, float q_of) const {
    const double left = fma(-share, widened(q_of), widened(p_of));
    return left > 0 ? left : 0.0;
  }
};

// sums[first + c] = the weights of chunk first + c, for kChunksAtOnce chunks of which those below
// `chunks` are there; by one warp. The lane's ids of a chunk are lane, lane + 32, ...: each load of
// a warp is of neighbours. A chunk's sum is that of its lanes: those 16 apart first, then 8, 4, 2
// and 1. At each of the first two steps a lane keeps the half of the chunks that its partner gives
// away, so that four sums take six exchanges.
template <bool kResidual>
TF_DEVICE void sum_chunks_as(const Weight& weight, int vocab, int first, int chunks, double* sums) {
  constexpr int kEach = kChunk / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  float p[kChunksAtOnce][kEach], q[kChunksAtOnce][kEach];
  TF_UNROLL
  for (int c = 0; c < kChunksAtOnce; ++c) {
    TF_UNROLL
    for (int k = 0; k < kEach; ++k) {
      const int i = (first + c) * kChunk + k * 32 + lane;
      const bool there = i < vocab;
      p[c][k] = there ? weight.p[i] : 0.0F;
      q[c][k] = kResidual && there ? weight.q[i] : 0.0F;
    }
  }
  if (weight.taken.can_have_any()) {
    TF_UNROLL
    for (int c = 0; c < kChunksAtOnce; ++c) {
      TF_UNROLL
      for (int k = 0; k < kEach; k += 2) {
        const std::uint64_t taken = weight.taken.word((first + c) * (kChunk / 64) + k / 2);
        if (taken == 0) continue;  // as nearly always
        if ((taken >> lane & 1) != 0) p[c][k] = 0;
        if ((taken >> (lane + 32) & 1) != 0) p[c][k + 1] = 0;
      }
    }
  }
  double mine[kChunksAtOnce];
  TF_UNROLL
  for (int c = 0; c < kChunksAtOnce; ++c) {
    double w[kEach];
    TF_UNROLL
    for (int k = 0; k < kEach; ++k) {
      w[k] = kResidual ? weight.rest(p[c][k], q[c][k]) : widened(p[c][k]);
    }
    mine[c] = (w[0] + w[1]) + (w[2] + w[3]);
  }
  int mask = 16;
  TF_UNROLL
  for (int kept = kChunksAtOnce / 2; kept > 0; kept /= 2, mask /= 2) {
    const bool upper = (lane & mask) != 0;
    TF_UNROLL
    for (int c = 0; c < kept; ++c) {
      const double given = upper ? mine[c] : mine[c + kept];
      mine[c] = (upper ? mine[c + kept] : mine[c]) + __shfl_xor_sync(0xffffffffU, given, mask);
    }
  }
  TF_UNROLL
  for (; mask > 0; mask /= 2) mine[0] += __shfl_xor_sync(0xffffffffU, mine[0], mask);
  constexpr int kLanes = 32 / kChunksAtOnce;  // that hold the same chunk
  if (lane % kLanes == 0 && first + lane / kLanes < chunks) sums[first + lane / kLanes] = mine[0];
}
TF_DEVICE void sum_chunks(const Weight& weight, int vocab, int first, int chunks, double* sums) {
  if (weight.is_residual) {
    sum_chunks_as<true>(weight, vocab, first, chunks, sums);
  } else {
    sum_chunks_as<false>(weight, vocab, first, chunks, sums);
  }
}

// What the lanes before hold, and all of them, added in the order of lanes: such sums never fall.
struct Prefix {
  double before, all;
};
TF_DEVICE Prefix sums_in_order(double mine) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  Prefix out{0, 0};
  TF_UNROLL_N(8)
  for (int t = 0; t < 32; ++t) {
    if (t == lane) out.before = out.all;
    out.all += __shfl_sync(0xffffffffU, mine, t);
  }
  return out;
}

// The id in a chunk with which `before` and the weights up to it exceed `target`, its last one of
// positive weight if none does, -1 if it has none; by one warp.
TF_DEVICE std::int32_t choose_in(const Weight& weight, int vocab, int chunk, double before,
                                 double target) {
  std::int32_t last = -1;
  TF_UNROLL_N(1)
  for (int k = 0; k < kChunk / 32; ++k) {
    const auto first = static_cast<std::int32_t>(chunk * kChunk + k * 32);
    const int i = first + static_cast<int>(threadIdx.x % 32);
    const double w = i < vocab ? weight(i) : 0.0;
    const Prefix sums = sums_in_order(w);
    const unsigned positive = __ballot_sync(0xffffffffU, w > 0 ? 1 : 0);
    const unsigned reach =
        __ballot_sync(0xffffffffU, w > 0 && before + (sums.before + w) > target ? 1 : 0);
    if (reach != 0) return first + __ffs(static_cast<int>(reach)) - 1;
    if (positive != 0) last = first + 31 - __clz(static_cast<int>(positive));
    before += sums.all;
  }
  return last;
}

// What lanes hold of the chunks' sums, each of so many neighbours; by one warp.
struct Shares {
  int begin, end;
  Prefix prefix;
};
TF_DEVICE Shares shares_of(int chunks, const double* sums) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int share = (chunks + 31) / 32;
  Shares out{min(lane * share, chunks), min((lane + 1) * share, chunks), {}};
  double mine = 0;
  for (int c = out.begin; c < out.end; ++c) mine += sums[c];
  out.prefix = sums_in_order(mine);
  return out;
}

// As choose_in() among all chunks, from their sums; by one warp.
TF_DEVICE std::int32_t choose(const Weight& weight, int vocab, double uniform, const Shares& of,
                              const double* sums) {
  const double target = uniform * of.prefix.all;
  double before = of.prefix.before;
  int chunk = -1;  // rounding may leave the total just short of the target: the last that weighs
  double start = 0;
  bool reached = false;
  TF_UNROLL_N(1)
  for (int c = of.begin; c < of.end && !reached; ++c) {
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

// To scratch->total the sum of all weights. Where `draws`, by uniform() to scratch->chosen an id
// with probability weight(id) / sum, by inverse transform in id order; -1 if nothing weighs. Chunks
// from `first` to before `end` are summed; the sums of the others are those of the call before.
template <class Uniform>
TF_DEVICE void sum_and_choose(const Weight& weight, int vocab, int first, int end, bool draws,
                              const Uniform& uniform, DrawScratch* scratch) {
  const int step = static_cast<int>(blockDim.x / 32);
  __syncthreads();  // scratch may still be read for the draw before
  TF_UNROLL_N(1)
  for (int c = first + static_cast<int>(threadIdx.x / 32) * kChunksAtOnce; c < end;
       c += step * kChunksAtOnce) {
    sum_chunks(weight, vocab, c, end, scratch->sums);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const Shares shares = shares_of(chunks_of(vocab), scratch->sums);
    const std::int32_t id = draws ? choose(weight, vocab, uniform(), shares, scratch->sums) : -1;
    if (threadIdx.x == 0) {
      scratch->total = shares.prefix.all;
      scratch->chosen = id;
    }
  }
  __syncthreads();
}

// An id in the order of coupled_tokens() (sampling.h), and its time.
struct Racer {
  double time = -1;
  std::int32_t id = -1;
};
// The one that comes after `before`; its id is -1 if there is none.
TF_DEVICE Racer race(const float* probs, int vocab, const DrawKey& key, std::int64_t position,
                     const Racer& before, DrawScratch* scratch) {
  constexpr std::int32_t kNone = 0x7fffffff;
  double best = INFINITY;
  std::int32_t id = kNone;
  TF_UNROLL_N(1)
  for (int i = static_cast<int>(threadIdx.x); i < vocab; i += static_cast<int>(blockDim.x)) {
    const float prob = probs[i];
    if (!(prob > 0)) continue;
    const double u = philox_token_uniform(
        key.seed, key.prompt, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(i));
    const double time = -log(u) / static_cast<double>(prob);
    if (time < before.time || (time == before.time && i <= before.id)) continue;
    if (time < best || id == kNone) {
      best = time;
      id = i;
    }
  }
  const double first = block_reduce_tree(best, scratch->times, Min{});
  const std::int32_t won = block_reduce_tree(best == first ? id : kNone, scratch->ids, Min{});
  return {first, won == kNone ? -1 : won};
}

// The least rank from `from` on of ids without a probability: what is certain when all others are
// taken. kEverything if there is none.
TF_DEVICE std::uint64_t next_certain(const float* probs, const float* logits, int vocab,
                                     std::uint64_t from, DrawScratch* scratch) {
  std::uint64_t least = kEverything;
  TF_UNROLL_N(1)
  for (int i = static_cast<int>(threadIdx.x); i < vocab; i += static_cast<int>(blockDim.x)) {
    if (probs[i] > 0) continue;
    const std::uint64_t rank = rank_of(logits[i], i);
    if (rank >= from) least = Min{}(least, rank);
  }
  return block_reduce_tree(least, scratch->ranks, Min{});
}

}  // namespace triforce::kernels
