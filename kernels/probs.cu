#include "kernels/kernels.h"

#include <bit>

#include "kernels/launch.cuh"
#include "kernels/reduce.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kBins = 256, kDigitBits = 8, kRankBits = 64;
constexpr int kBinsPerLane = kBins / 32;
constexpr unsigned kBuckets = kBins * kBins;
constexpr std::uint64_t kNotFinite = 0;  // below every rank of a finite logit
constexpr std::uint64_t kEverything = ~std::uint64_t{0};

using Word = std::uint64_t;  // whole granules

struct Scratch {
  unsigned low[kBins], high[kBins];  // words of the bins' measures
  std::uint64_t reduce[kWarps];
  float mean[kWarps];
  // The ids that are still in question, if they are at most a warp.
  std::uint64_t ranks[32];
  Word measures[32];
  unsigned found;
  Word before;  // measure of all bins before the chosen one
  int bin;
  std::uint64_t cut;
  Word upto;  // measure of all ids of rank `cut` at most
};

// Rising ranks are falling logits, then rising ids; -0 counts as 0.
TF_DEVICE std::uint64_t rank_of(float logit, std::int64_t id) {
  const std::uint32_t bits = __float_as_uint(logit + 0.0F);
  if ((bits & 0x7f800000U) == 0x7f800000U) return kNotFinite;
  const std::uint32_t rising = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return (std::uint64_t{~rising} << 32) | static_cast<std::uint32_t>(id);
}

// w 2^shift rounded to the nearest whole number, to even from the middle; w in [0, 1], shift < 127.
// In whole numbers, because f64 is slow on some cards.
TF_DEVICE Word whole(float w, int shift) {
  const std::uint32_t bits = __float_as_uint(w), field = bits >> 23;
  const std::uint32_t mantissa = field > 0 ? (bits & 0x7fffffU) | 0x800000U : bits;
  const int left = static_cast<int>(field > 0 ? field : 1) - 150 + shift;
  if (left >= 0) return Word{mantissa} << left;
  if (left < -25) return 0;
  const std::uint32_t one = 1U << -left, rest = mantissa & (one - 1), result = mantissa >> -left;
  return result + (2 * rest + (result & 1U) > one ? 1U : 0U);
}

// Every thread sees to the same ids in all passes.
struct Row {
  const float* logits;
  std::int64_t vocab;
  int shift;  // a weight of 1 has 2^shift granules
  float max_logit, inverse_temperature, buckets_per_unit;

  // body(id, logit)
  template <class Body>
  TF_DEVICE void for_mine(const Body& body) const {
    TF_UNROLL_N(4)
    for (std::int64_t i = threadIdx.x; i < vocab; i += kThreads) body(i, logits[i]);
  }
  // e^((logit - max) / T)
  TF_DEVICE float weight(float logit) const {
    return expf((logit - max_logit) * inverse_temperature);
  }
  TF_DEVICE Word granules(float logit) const { return whole(weight(logit), shift); }
  // Rises with the rank. Buckets are equally wide, so that ids spread over them; outliers, and what
  // is not a number for huge logits, are in the last one.
  TF_DEVICE unsigned bucket(float logit) const {
    const float x = (max_logit - logit) * buckets_per_unit;
    return x < static_cast<float>(kBuckets - 1) ? static_cast<unsigned>(x) : kBuckets - 1;
  }
};

// Atomics on words of 32 bits are instructions; on 64 they are loops, slow where ids meet.
TF_DEVICE void add_to_bin(int bin, Word measure, Scratch* s) {
  if (measure == 0) return;
  const auto low = static_cast<unsigned>(measure);
  const unsigned old = atomicAdd(&s->low[bin], low);
  const unsigned carried = static_cast<unsigned>(measure >> 32) + (old + low < old ? 1U : 0U);
  if (carried > 0) atomicAdd(&s->high[bin], carried);
}
TF_DEVICE Word measure_of(int bin, const Scratch* s) {
  return Word{s->high[bin]} << 32 | s->low[bin];
}

// The first bin with which `before` plus the measure of all bins up to it reaches `target`, the
// last one if none before it does; by the first warp.
TF_DEVICE void choose_bin(Word before, double target, Scratch* s) {
  const int lane = static_cast<int>(threadIdx.x);
  Word mine = 0;
  for (int i = 0; i < kBinsPerLane; ++i) mine += measure_of(lane * kBinsPerLane + i, s);
  Word upto = mine;
  for (int step = 1; step < 32; step *= 2) {
    const Word other = __shfl_up_sync(0xffffffffU, upto, static_cast<unsigned>(step));
    if (lane >= step) upto += other;
  }
  const unsigned reach =
      __ballot_sync(0xffffffffU, static_cast<double>(before + upto) >= target ? 1 : 0);
  if (lane != (reach == 0 ? 31 : __ffs(static_cast<int>(reach)) - 1)) return;
  Word sum = before + upto - mine;
  int bin = lane * kBinsPerLane;
  for (; bin + 1 < (lane + 1) * kBinsPerLane; ++bin) {
    const Word measure = measure_of(bin, s);
    if (static_cast<double>(sum + measure) >= target) break;
    sum += measure;
  }
  s->before = sum;
  s->bin = bin;
}

// The least of the gathered ranks with which `before` plus the measures up to it reaches `target`,
// kEverything if none does; by the first warp.
TF_DEVICE void choose_rank(Word before, double target, Scratch* s) {
  const unsigned lane = threadIdx.x;
  const bool there = lane < s->found;
  const std::uint64_t mine = there ? s->ranks[lane] : kEverything;
  Word upto = before;
  for (unsigned i = 0; i < s->found; ++i) {
    if (s->ranks[i] <= mine) upto += s->measures[i];
  }
  const bool reached = there && static_cast<double>(upto) >= target;
  const std::uint64_t lowest = warp_reduce(reached ? mine : kEverything, Min{});
  if (lane == 0) s->cut = lowest;
  if (reached && mine == lowest) s->upto = upto;
}

TF_DEVICE Word total(const Row& row, std::uint64_t limit, Scratch* s) {
  std::uint64_t mine = 0;
  row.for_mine([&](std::int64_t i, float logit) {
    if (rank_of(logit, i) <= limit) mine += row.granules(logit);
  });
  return block_reduce(mine, s->reduce, Add{});
}

struct Kept {
  std::uint64_t limit;  // the greatest rank that is kept
  Word sum;             // granules of what is kept; 0: not known
};

// Keeps the leading ids, of rank `limit` at most, whose measures reach a target: top_k ids, or
// where that is 0 the share top_p of all granules. A digit of their places at a time: two of their
// buckets', then those of their ranks.
TF_DEVICE Kept cut(const Row& row, std::uint64_t limit, int top_k, float top_p, Scratch* s) {
  unsigned bucket = 0;       // its digits so far
  std::uint64_t prefix = 0;  // the rank's
  Word before = 0, sum = 0;
  double target = 0;
  for (int shift = kRankBits + kDigitBits;; shift -= kDigitBits) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads)
      s->low[i] = s->high[i] = 0;
    if (threadIdx.x == 0) s->found = 0;
    __syncthreads();
    const bool all = shift > kRankBits, by_bucket = shift >= kRankBits;
    Word mine = 0;
    row.for_mine([&](std::int64_t i, float logit) {
      const std::uint64_t rank = rank_of(logit, i);
      if (rank > limit) return;
      const unsigned at = row.bucket(logit);
      if (!all && (by_bucket ? at >> kDigitBits : at) != bucket) return;
      if (shift + kDigitBits < kRankBits && rank >> (shift + kDigitBits) != prefix) return;
      const Word m = top_k > 0 ? Word{1} : row.granules(logit);
      if (all) {
        mine += m;
      } else {
        const unsigned slot = atomicAdd(&s->found, 1U);
        if (slot < 32) {
          s->ranks[slot] = rank;
          s->measures[slot] = m;
        }
      }
      const auto bin =
          static_cast<int>((by_bucket ? at >> (shift - kRankBits) : rank >> shift) % kBins);
      // The last one, where outliers meet, is chosen if no other is.
      if (bin < kBins - 1) add_to_bin(bin, m, s);
    });
    if (all) {
      sum = block_reduce(mine, s->reduce, Add{});
      target = top_k > 0 ? static_cast<double>(top_k)
                         : static_cast<double>(top_p) * static_cast<double>(sum);
    }
    __syncthreads();
    const bool few = !all && s->found <= 32;
    if (threadIdx.x < 32) {
      if (few) {
        choose_rank(before, target, s);
      } else {
        choose_bin(before, target, s);
      }
    }
    __syncthreads();
    if (few) return s->cut == kEverything ? Kept{limit, sum} : Kept{s->cut, s->upto};
    before = s->before;
    if (by_bucket) {
      bucket = bucket << kDigitBits | static_cast<unsigned>(s->bin);
    } else {
      prefix = prefix << kDigitBits | static_cast<std::uint64_t>(s->bin);
      // Many equal logits of neighbouring ids; the measure of the last bin was not taken.
      if (shift == 0) return {Min{}(limit, prefix), 0};
    }
  }
}

// kHeld: the row is read once and then kept in shared memory behind `s`.
template <bool kHeld>
__global__ void __launch_bounds__(kThreads, 1)
    probs_kernel(const float* __restrict__ logits, std::int64_t logits_stride,
                 SamplingParams params, int shift, float* __restrict__ probs,
                 std::int64_t probs_stride, std::int64_t vocab) {
  TF_SHARED(Scratch, s);
  const float* const given = logits + blockIdx.x * logits_stride;
  float* const out = probs + blockIdx.x * probs_stride;
  Row row{given, vocab, shift, 0, 0, 0};
  std::uint64_t best = kEverything;
  float mean = 0;
  if constexpr (kHeld) {
    auto* const held = reinterpret_cast<float*>(s + 1);
    TF_UNROLL_N(8)
    for (std::int64_t i = threadIdx.x; i < vocab; i += kThreads) held[i] = given[i];
    row.logits = held;
  }
  row.for_mine([&](std::int64_t i, float logit) {
    best = Min{}(best, rank_of(logit, i));
    mean += logit;
  });
  best = block_reduce(best, s->reduce, Min{});
  mean = block_reduce(mean, s->mean, Add{}) / static_cast<float>(vocab);
  const auto first = static_cast<std::int64_t>(best & 0xffffffffU);
  const bool spread = best != kNotFinite && params.temperature > 0;
  Kept kept{kEverything, 0};
  float factor = 0;
  if (spread) {
    row.max_logit = row.logits[first];
    row.inverse_temperature = 1.0F / params.temperature;
    // From the greatest logit to as far below the mean.
    row.buckets_per_unit = static_cast<float>(kBuckets) / (2 * fabsf(row.max_logit - mean));
    const int top_k = params.top_k > 0 && params.top_k < vocab ? params.top_k : 0;
    // Top-k, then top-p of what it keeps: one loop, so that the code is there once.
    for (int stage = top_k > 0 ? 0 : 1; stage < (params.top_p < 1 ? 2 : 1); ++stage) {
      kept = cut(row, kept.limit, stage == 0 ? top_k : 0, params.top_p, s);
      if (stage == 0) kept.sum = 0;  // it counted ids
    }
    if (kept.sum == 0) kept.sum = total(row, kept.limit, s);
    factor =
        static_cast<float>(static_cast<double>(Word{1} << shift) / static_cast<double>(kept.sum));
  }
  row.for_mine([&](std::int64_t i, float logit) {
    float prob = best == kNotFinite ? NAN : i == first ? 1.0F : 0.0F;
    if (spread) prob = rank_of(logit, i) <= kept.limit ? row.weight(logit) * factor : 0.0F;
    out[i] = prob;
  });
}

}  // namespace

void to_probs(const TensorView& logits, const SamplingParams& params, const TensorView& probs,
              cudaStream_t stream) {
  const std::int64_t vocab = logits.shape[1];
  // Sums stay below 2^53: whole numbers in double.
  const int shift = 52 - static_cast<int>(std::bit_width(static_cast<std::uint64_t>(vocab) - 1));
  const std::size_t held = sizeof(Scratch) + static_cast<std::size_t>(vocab) * sizeof(float);
  const bool fits = held <= max_shared_bytes();
  launch(fits ? probs_kernel<true> : probs_kernel<false>, dims(logits.shape[0]), dims(kThreads),
         fits ? held : sizeof(Scratch), stream, static_cast<const float*>(logits.data),
         logits.stride[0], params, shift, static_cast<float*>(probs.data), probs.stride[0], vocab);
}

}  // namespace triforce::kernels
