#include <bit>

#include "kernels/draw.cuh"
#include "kernels/jobs.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/ranks.cuh"
#include "kernels/reduce.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kBins = 256, kDigitBits = 8, kRankBits = 64;
constexpr int kBinsPerLane = kBins / 32;
constexpr int kBuckets = kBins * kBins;

struct Scratch {
  unsigned low[kBins], high[kBins];  // words of the bins' measures
  std::uint64_t reduce[kWarps];
  float max[kWarps], mean[kWarps];
  int first[kWarps];
  // The ids that are still in question, if they are at most a warp.
  std::uint64_t ranks[32];
  Word measures[32];
  unsigned found;
  Word before;  // measure of all bins before the chosen one
  int bin;
  std::uint64_t cut;
  Word upto;  // measure of all ids of rank `cut` at most
};

// Every thread sees to the same ids in all passes: a warp to those of a chunk at a time.
struct Row {
  const float* logits;
  int vocab, shift;  // a weight of 1 has 2^shift granules
  float max_logit, inverse_temperature, buckets_per_unit;

  // body(id of the first, logits): of ids 32 apart, together so that their latencies overlap: those
  // of a chunk, after the loads of kAtOnce of them, or a single one.
  template <int kAtOnce = 1, class Body>
  TF_DEVICE void for_groups(const Body& body) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    int chunk = take_chunks<kAtOnce>(static_cast<int>(threadIdx.x / 32), body);
    if constexpr (kAtOnce > 1) chunk = take_chunks<1>(chunk, body);
    const int end = min(chunk * kChunk + kChunk, vocab);  // of the last one, which is not whole
    TF_UNROLL_N(1)
    for (int i = chunk * kChunk + lane; i < end; i += 32) {
      const float mine[1] = {logits[i]};
      body(i, mine);
    }
  }
  // body(id, logit) for each.
  template <int kAtOnce = 1, class Body>
  TF_DEVICE void for_mine(const Body& body) const {
    for_groups<kAtOnce>([&]<int kEach>(int first, const float(&mine)[kEach]) {
      TF_UNROLL
      for (int k = 0; k < kEach; ++k) body(first + k * 32, mine[k]);
    });
  }
  // e^((logit - max) / T)
  TF_DEVICE float weight(float logit) const {
    return expf((logit - max_logit) * inverse_temperature);
  }
  TF_DEVICE Word granules(float logit) const { return whole(weight(logit), shift); }
  // The bucket of a logit and where in it. Rises with the rank. Buckets are equally wide, so that
  // ids spread over them; outliers, and what is not a number for huge logits, are in the last one.
  TF_DEVICE float place(float logit) const {
    return fminf((logit - max_logit) * -buckets_per_unit, static_cast<float>(kBuckets - 1));
  }

 private:
  // Whole chunks of the warp's from `chunk` on, as many as a multiple of kAtOnce; the one after
  // them.
  template <int kAtOnce, class Body>
  TF_DEVICE int take_chunks(int chunk, const Body& body) const {
    constexpr int kEach = kChunk / 32, kLast = kWarps * (kAtOnce - 1);
    const int lane = static_cast<int>(threadIdx.x % 32), chunks = vocab / kChunk;
    TF_UNROLL_N(1)
    for (; chunk + kLast < chunks; chunk += kWarps * kAtOnce) {
      const int first = chunk * kChunk + lane;
      float mine[kAtOnce][kEach];
      TF_UNROLL
      for (int c = 0; c < kAtOnce; ++c) {
        TF_UNROLL
        for (int k = 0; k < kEach; ++k) mine[c][k] = logits[first + c * kWarps * kChunk + k * 32];
      }
      TF_UNROLL
      for (int c = 0; c < kAtOnce; ++c) body(first + c * kWarps * kChunk, mine[c]);
    }
    return chunk;
  }
};

// Atomics on words of 32 bits are instructions; on 64 they are loops, slow where ids meet.
TF_DEVICE void add_to_bin(int bin, Word measure, Scratch* s) {
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
  TF_UNROLL_N(1)
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

struct Look {
  float max;   // infinite if any logit is not finite
  float mean;  // in an order of its own
};
// The first pass over a row: kHeld: copies it to `held`, where the others find it.
template <bool kHeld>
TF_DEVICE Look look(const Row& row, float* held, Scratch* s) {
  float max = -INFINITY, mean = 0, zero = 0;
  row.for_mine<2>([&](int i, float logit) {
    if constexpr (kHeld) held[i] = logit;
    max = fmaxf(max, logit);
    mean += logit;
    zero = fmaf(logit, 0.0F, zero);  // NaN from what is not finite
  });
  max = block_reduce_tree(zero == 0 ? max : INFINITY, s->max, Max{});
  mean = block_reduce_tree(mean, s->mean, Add{}) / static_cast<float>(row.vocab);
  return {max, mean};
}

// The lowest of the ids that have the greatest logit.
TF_DEVICE int first_of_max(const Row& row, Scratch* s) {
  int first = row.vocab;
  row.for_mine([&](int i, float logit) {
    if (logit == row.max_logit) first = min(first, i);
  });
  return block_reduce_tree(first, s->first, Min{});
}

// The first digit of all buckets. Bins get the measures of their ids: 1 where top_k > 0, and else
// their granules. The last one, where outliers meet, is chosen if no other is and so gets none.
// Returns the measure of all ids; for that alone no bins are filled.
TF_DEVICE Word fill_bins(const Row& row, std::uint64_t limit, int top_k, bool sum_alone,
                         Scratch* s) {
  const Leading among(limit);
  Word mine = 0;
  row.for_groups([&]<int kEach>(int first, const float(&values)[kEach]) {
    Word m[kEach];
    TF_UNROLL
    for (int k = 0; k < kEach; ++k) m[k] = row.granules(values[k]);
    if (top_k > 0) {
      TF_UNROLL
      for (int k = 0; k < kEach; ++k) m[k] = 1;
    }
    if (limit != kEverything) {
      TF_UNROLL
      for (int k = 0; k < kEach; ++k) m[k] = among.has(first + k * 32, values[k]) ? m[k] : 0;
    }
    int bin[kEach];
    TF_UNROLL
    for (int k = 0; k < kEach; ++k) {
      bin[k] = static_cast<int>(row.place(values[k])) >> kDigitBits;
      mine += m[k];
    }
    TF_UNROLL
    for (int k = 0; k < kEach; ++k) {
      if (m[k] != 0 && bin[k] < kBins - 1 && !sum_alone) add_to_bin(bin[k], m[k], s);
    }
  });
  return block_reduce_tree(mine, s->reduce, Add{});
}

// What a search has found so far: ids of buckets [begin, end) and, below one bucket, of ranks that
// begin with `prefix`, of which `shift` bits are to come.
struct Range {
  float begin, end;
  std::uint64_t prefix;
  int shift;
};

// The next digit, which is the last one of buckets or one of ranks: bins as above, and a list of
// the first ids that come.
TF_DEVICE void fill_bins_of(const Range& range, const Row& row, const Leading& among, int top_k,
                            Scratch* s) {
  const bool by_bucket = range.shift >= kRankBits, by_prefix = range.shift + kDigitBits < kRankBits;
  const auto see = [&](int i, float logit) {
    const float place = row.place(logit);
    if (!(place >= range.begin && place < range.end) || !among.has(i, logit)) return;
    const std::uint64_t rank = rank_of(logit, i);
    if (by_prefix && rank >> (range.shift + kDigitBits) != range.prefix) return;
    const Word m = top_k > 0 ? Word{1} : row.granules(logit);
    const unsigned slot = atomicAdd(&s->found, 1U);
    if (slot < 32) {
      s->ranks[slot] = rank;
      s->measures[slot] = m;
    }
    const int bin = static_cast<int>(
        (by_bucket ? static_cast<unsigned>(place) : static_cast<unsigned>(rank >> range.shift)) %
        kBins);
    if (m != 0 && bin < kBins - 1) add_to_bin(bin, m, s);
  };
  row.for_groups([&]<int kEach>(int first, const float(&values)[kEach]) {
    bool any = false;
    for (const float logit : values) {
      const float place = row.place(logit);
      any |= (place >= range.begin) & (place < range.end);
    }
    if (!any) return;  // as nearly always
    TF_UNROLL_N(1)
    for (int k = 0; k < kEach; ++k) {
      see(first + k * 32, row.logits[first + k * 32]);
    }
  });
}

struct Kept {
  std::uint64_t limit;  // the greatest rank that is kept
  Word sum;             // granules of what is kept; 0: not known
};

// Keeps the leading ids, of those up to rank `limit`, whose measures reach a target: top_k ids, or
// where that is 0 the share top_p of all granules; all of them, only to sum them, where that is 1.
// A digit of their places at a time: two of their buckets', then those of their ranks.
TF_DEVICE Kept cut(const Row& row, std::uint64_t limit, int top_k, float top_p, Scratch* s) {
  const Leading among(limit);
  Range range{0, kBuckets, 0, kRankBits + kDigitBits};
  Word before = 0, sum = 0;
  double target = 0;
  for (;; range.shift -= kDigitBits) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads)
      s->low[i] = s->high[i] = 0;
    if (threadIdx.x == 0) s->found = 0;
    __syncthreads();
    const bool all = range.shift > kRankBits;
    if (all) {
      const bool sum_alone = top_k == 0 && top_p >= 1;
      sum = fill_bins(row, limit, top_k, sum_alone, s);
      if (sum_alone) return {limit, sum};
      target = top_k > 0 ? static_cast<double>(top_k)
                         : static_cast<double>(top_p) * static_cast<double>(sum);
    } else {
      fill_bins_of(range, row, among, top_k, s);
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
    if (range.shift >= kRankBits) {
      const int width = all ? kBins : 1;
      range.begin += static_cast<float>(s->bin * width);
      range.end = range.begin + static_cast<float>(width);
    } else {
      range.prefix = range.prefix << kDigitBits | static_cast<std::uint64_t>(s->bin);
      // Many equal logits of neighbouring ids; the measure of the last bin was not taken.
      if (range.shift == 0) return {Min{}(limit, range.prefix), 0};
    }
  }
}

// What is kept of a row, and what its weights are multiplied by.
TF_DEVICE Kept keep(const Row& row, const SamplingParams& params, Scratch* s) {
  Kept kept{kEverything, 0};
  const int top_k = params.top_k > 0 && params.top_k < row.vocab ? params.top_k : 0;
  // Top-k, then top-p of what it keeps, then the sum of that: one loop, so that the code is there
  // once.
  for (int stage = 0; stage < 3; ++stage) {
    const bool counts = stage == 0;
    if (counts ? top_k == 0 : kept.sum != 0 || (stage == 1 && params.top_p >= 1)) continue;
    kept = cut(row, kept.limit, counts ? top_k : 0, stage == 1 ? params.top_p : 1.0F, s);
    if (counts) kept.sum = 0;  // it counted ids
  }
  return kept;
}

// The draws from rows that are made; of nothing where none is.
struct Draws {
  Jobs<SampleJob> jobs;
  bool coupled;
  Token* out;
};

// give(id, probability) for all ids: NaN where the row is not finite.
template <class Give>
TF_DEVICE void write_probs(const Row& row, const Leading& among, float factor, bool finite,
                           const Give& give) {
  const float none = finite ? 0.0F : NAN;
  row.for_groups([&]<int kEach>(int first, const float(&values)[kEach]) {
    bool has[kEach], any = false;
    TF_UNROLL
    for (int k = 0; k < kEach; ++k) any |= has[k] = among.has(first + k * 32, values[k]);
    float made[kEach];
    TF_UNROLL
    for (int k = 0; k < kEach; ++k) made[k] = none;
    if (any && finite) {
      TF_UNROLL
      for (int k = 0; k < kEach; ++k) {
        const float prob = row.weight(values[k]) * factor;
        made[k] = has[k] ? prob : none;
      }
    }
    TF_UNROLL
    for (int k = 0; k < kEach; ++k) give(first + k * 32, made[k]);
  });
}

// kHeld: the row is read once and then kept in shared memory; kDraws: a token is drawn from each
// row as sample() would. One block a row: what follows from all of it, the greatest logit and then
// the cut, would end a kernel of several blocks, and by the model that gains 9 us of 22 to 28,
// under 1% of a token (bench/results/cuda_model.md).
template <bool kHeld, bool kDraws>
__global__ void __launch_bounds__(kThreads, 1)
    probs_kernel(ProbsRows rows, SamplingParams params, int shift, Draws draws) {
  TF_SHARED(Scratch, s);
  const int vocab = rows.vocab;
  auto* const behind = reinterpret_cast<unsigned char*>(s + 1);
  auto* const held = reinterpret_cast<float*>(behind + (kDraws ? sample_scratch_bytes(vocab) : 0));
  float* const out = rows.rows[blockIdx.x].probs;
  Row row{rows.rows[blockIdx.x].logits, vocab, shift, 0, 0, 0};
  const Look seen = look<kHeld>(row, held, s);
  row.max_logit = seen.max;
  if constexpr (kHeld) row.logits = held;
  const bool finite = seen.max < INFINITY;
  // In the place of its logit, which nobody but the same thread has read.
  const auto give = [&](int i, float prob) {
    out[i] = prob;
    if constexpr (kHeld && kDraws) held[i] = prob;
  };
  Kept kept{kEverything, 0};
  float factor = 1;
  if (finite && params.temperature > 0) {
    row.inverse_temperature = 1.0F / params.temperature;
    // From the greatest logit to as far below the mean.
    row.buckets_per_unit = static_cast<float>(kBuckets) / (2 * fabsf(row.max_logit - seen.mean));
    kept = keep(row, params, s);
    factor =
        static_cast<float>(static_cast<double>(Word{1} << shift) / static_cast<double>(kept.sum));
  } else if (finite) {
    kept.limit = rank_of(row.max_logit, first_of_max(row, s));  // its weight is 1
  }
  write_probs(row, Leading(kept.limit), factor, finite, give);
  if constexpr (kDraws) {
    auto* const scratch = reinterpret_cast<SampleScratch*>(behind);
    draws.jobs.fetch([&](const SampleJob& from) {
      if (threadIdx.x == 0) scratch->job = from;
    });
    __syncthreads();
    const SampleJob& job = scratch->job;
    const float* const from = kHeld ? held : out;
    std::int32_t token = -1;
    if (finite && draws.coupled) {
      token = race(from, vocab, job.key, job.position, {}, &scratch->draw).id;
    } else if (finite) {
      const auto uniform = [&] {
        return philox_uniform(job.key, Purpose::kPropose, static_cast<std::uint32_t>(job.position),
                              job.sibling);
      };
      sum_and_choose({.p = from}, vocab, 0, chunks_of(vocab), true, uniform, &scratch->draw);
      token = scratch->draw.chosen;
    }
    if (threadIdx.x == 0) draws.out[job.first] = token;
  }
}

template <bool kDraws>
void run(const ProbsRows& rows, const SamplingParams& params, const Draws& draws,
         cudaStream_t stream) {
  // Sums stay below 2^53: whole numbers in double.
  const int shift = 52 - static_cast<int>(std::bit_width(static_cast<unsigned>(rows.vocab) - 1));
  const std::size_t needed = sizeof(Scratch) + (kDraws ? sample_scratch_bytes(rows.vocab) : 0),
                    held = needed + static_cast<std::size_t>(rows.vocab) * sizeof(float);
  const bool fits = held <= max_shared_bytes();
  launch(fits ? probs_kernel<true, kDraws> : probs_kernel<false, kDraws>, dims(rows.count),
         dims(kThreads), fits ? held : needed, stream, rows, params, shift, draws);
}

}  // namespace

void to_probs(const ProbsRows& rows, const SamplingParams& params, cudaStream_t stream) {
  run<false>(rows, params, {}, stream);
}

void to_probs_and_sample(const ProbsRows& rows, const SamplingParams& params,
                         std::span<const SampleRequest> requests, Acceptance acceptance, void* jobs,
                         Token* out, cudaStream_t stream) {
  run<true>(rows, params, {sample_jobs(requests, jobs), acceptance == Acceptance::kCoupled, out},
            stream);
}

}  // namespace triforce::kernels
