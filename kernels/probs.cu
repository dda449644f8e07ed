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
};

// Rising ranks are falling logits, then rising ids; -0 counts as 0.
TF_DEVICE std::uint64_t rank_of(float logit, std::int64_t id) {
  const std::uint32_t bits = __float_as_uint(logit + 0.0F);
  if ((bits & 0x7f800000U) == 0x7f800000U) return kNotFinite;
  const std::uint32_t rising = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return (std::uint64_t{~rising} << 32) | static_cast<std::uint32_t>(id);
}

struct Min {
  template <class V>
  TF_DEVICE V operator()(V a, V b) const {
    return a < b ? a : b;
  }
};

// Every thread sees to the same ids in all passes: what it writes, only it reads.
struct Row {
  const float* logits;
  float* probs;  // holds weights e^((logit - max) / T) until the end
  std::int64_t vocab;
  double granules;  // per unit of weight
  float max_logit, buckets_per_unit;

  template <class Body>
  TF_DEVICE void for_mine(const Body& body) const {
    for (std::int64_t i = threadIdx.x; i < vocab; i += kThreads) body(i);
  }
  TF_DEVICE std::uint64_t rank(std::int64_t i) const { return rank_of(logits[i], i); }
  TF_DEVICE Word weight(std::int64_t i) const {
    return static_cast<Word>(__double2ll_rn(static_cast<double>(probs[i]) * granules));
  }
  // Rises with the rank. Buckets are equally wide, so that ids spread over them; outliers, and what
  // is not a number for huge logits, are in the last one.
  TF_DEVICE unsigned bucket(std::int64_t i) const {
    const float x = (max_logit - logits[i]) * buckets_per_unit;
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
}

// The rank with which the measures of leading ids, of rank `limit` at most, reach `target`: a digit
// of their places at a time, two of their buckets', then those of their ranks.
template <class Measure>
TF_DEVICE std::uint64_t cut(const Row& row, std::uint64_t limit, double target,
                            const Measure& measure, Scratch* s) {
  unsigned bucket = 0;       // its digits so far
  std::uint64_t prefix = 0;  // the rank's
  Word before = 0;
  for (int shift = kRankBits + kDigitBits;; shift -= kDigitBits) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads)
      s->low[i] = s->high[i] = 0;
    if (threadIdx.x == 0) s->found = 0;
    __syncthreads();
    const bool all = shift > kRankBits, by_bucket = shift >= kRankBits;
    row.for_mine([&](std::int64_t i) {
      const std::uint64_t rank = row.rank(i);
      if (rank > limit) return;
      const unsigned at = row.bucket(i);
      if (!all && (by_bucket ? at >> kDigitBits : at) != bucket) return;
      if (shift + kDigitBits < kRankBits && rank >> (shift + kDigitBits) != prefix) return;
      const Word m = measure(i);
      if (!all) {
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
    if (few) return Min{}(limit, s->cut);
    before = s->before;
    if (by_bucket) {
      bucket = bucket << kDigitBits | static_cast<unsigned>(s->bin);
    } else {
      prefix = prefix << kDigitBits | static_cast<std::uint64_t>(s->bin);
      if (shift == 0) return Min{}(limit, prefix);
    }
  }
}

TF_DEVICE Word total(const Row& row, std::uint64_t limit, Scratch* s) {
  std::uint64_t mine = 0;
  row.for_mine([&](std::int64_t i) {
    if (row.rank(i) <= limit) mine += row.weight(i);
  });
  return block_reduce(mine, s->reduce, Add{});
}

__global__ void __launch_bounds__(kThreads, 1)
    probs_kernel(const float* logits, std::int64_t logits_stride, SamplingParams params,
                 double granules, float* probs, std::int64_t probs_stride, std::int64_t vocab) {
  TF_SHARED(Scratch, s);
  Row row{logits + blockIdx.x * logits_stride,
          probs + blockIdx.x * probs_stride,
          vocab,
          granules,
          0,
          0};
  std::uint64_t best = kEverything;
  float mean = 0;
  row.for_mine([&](std::int64_t i) {
    best = Min{}(best, row.rank(i));
    mean += row.logits[i];
  });
  best = block_reduce(best, s->reduce, Min{});
  mean = block_reduce(mean, s->mean, Add{}) / static_cast<float>(vocab);
  const auto first = static_cast<std::int64_t>(best & 0xffffffffU);
  if (best == kNotFinite) {
    row.for_mine([&](std::int64_t i) { row.probs[i] = NAN; });
    return;
  }
  if (params.temperature <= 0) {
    row.for_mine([&](std::int64_t i) { row.probs[i] = i == first ? 1.0F : 0.0F; });
    return;
  }
  const float max_logit = row.logits[first], inverse = 1.0F / params.temperature;
  row.max_logit = max_logit;
  // From the greatest logit to as far below the mean.
  row.buckets_per_unit = static_cast<float>(kBuckets) / (2 * fabsf(max_logit - mean));
  row.for_mine([&](std::int64_t i) { row.probs[i] = expf((row.logits[i] - max_logit) * inverse); });
  std::uint64_t limit = kEverything;
  if (params.top_k > 0 && params.top_k < vocab) {
    limit = cut(
        row, limit, params.top_k, [](std::int64_t) { return Word{1}; }, s);
  }
  Word sum = total(row, limit, s);
  if (params.top_p < 1) {
    const double target = static_cast<double>(params.top_p) * static_cast<double>(sum);
    limit = cut(
        row, limit, target, [&](std::int64_t i) { return row.weight(i); }, s);
    sum = total(row, limit, s);
  }
  const auto factor = static_cast<float>(granules / static_cast<double>(sum));
  row.for_mine(
      [&](std::int64_t i) { row.probs[i] = row.rank(i) <= limit ? row.probs[i] * factor : 0.0F; });
}

}  // namespace

void to_probs(const TensorView& logits, const SamplingParams& params, const TensorView& probs,
              cudaStream_t stream) {
  const auto vocab = static_cast<std::uint64_t>(logits.shape[1]);
  // Sums stay below 2^53: whole numbers in double.
  const double granules = 0x1p52 / static_cast<double>(std::bit_ceil(vocab));
  launch(probs_kernel, dims(logits.shape[0]), dims(kThreads), sizeof(Scratch), stream,
         static_cast<const float*>(logits.data), logits.stride[0], params, granules,
         static_cast<float*>(probs.data), probs.stride[0], logits.shape[1]);
}

}  // namespace triforce::kernels
