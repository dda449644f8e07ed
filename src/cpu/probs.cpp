#include "cpu/probs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cpu/falling_rank.h"
#include "cpu/probs_kernels.h"
#include "cpu/scratch.h"

namespace triforce::cpu {
namespace {

constexpr std::int64_t kMaxSorted = 48;       // fewer candidates than this are simply sorted
constexpr std::int64_t kIdsPerThread = 8192;  // less work than this is not worth a thread
constexpr std::int64_t kSlack = 16;           // beyond the last candidate
constexpr int kMaxPasses = 12;                // each cuts the range of logits in four

// Rising keys are falling logits, then rising places.
std::uint64_t rank_key(float logit, std::int64_t place) {
  return (std::uint64_t{falling_rank(logit)} << 32U) | static_cast<std::uint32_t>(place);
}
std::uint32_t place_of(std::uint64_t key) { return static_cast<std::uint32_t>(key); }

std::int64_t blocks_of(std::int64_t vocab) { return (vocab + kProbsBlock - 1) / kProbsBlock; }

// Memory of one row in work. Candidates are the ids that a cut may keep.
struct Work {
  std::uint64_t* keys = nullptr;  // [vocab]
  std::int32_t* ids = nullptr;    // [vocab + 16], of candidates, rising
  float* values = nullptr;        // [vocab + 16], their logits
  float* weights = nullptr;       // [vocab + 16], of candidates, e^((logit - max) / T)
  float* block_max = nullptr;     // [blocks]
};
Work take_work(Scratch& scratch, std::int64_t vocab, std::int64_t rows) {
  return {.keys = scratch.take<std::uint64_t>(vocab * rows),
          .ids = scratch.take<std::int32_t>((vocab + kSlack) * rows),
          .values = scratch.take<float>((vocab + kSlack) * rows),
          .weights = scratch.take<float>((vocab + kSlack) * rows),
          .block_max = scratch.take<float>(blocks_of(vocab) * rows)};
}

class Row {
 public:
  Row(const ProbsKernels& kernels, const float* logits, std::int64_t vocab, float* probs,
      const Work& work)
      : run_(kernels),
        logits_(logits),
        vocab_(vocab),
        probs_(probs),
        work_(work),
        granule_(static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(vocab)))) {}

  void run(const SamplingParams& params) {
    run_.scan(logits_, vocab_, work_.block_max, &seen_);
    if (!seen_.finite) {
      std::fill_n(probs_, vocab_, std::numeric_limits<float>::quiet_NaN());
    } else if (params.temperature <= 0) {
      one_hot();
    } else if (params.top_k > 0 && params.top_k < vocab_) {
      const float inverse = 1.0F / params.temperature;
      choose(best_block(params.top_k), inverse);
      cut(true, params.top_k);
      double sum = total_weight();
      if (params.top_p < 1) sum = cut(false, static_cast<double>(params.top_p) * sum);
      scatter(sum);
    } else {
      const float inverse = 1.0F / params.temperature;
      run_.weights(logits_, vocab_, seen_.max, inverse, probs_);
      double sum = 0;
      run_.total(probs_, vocab_, granule_, &sum);
      if (params.top_p >= 1) {
        run_.scale(probs_, vocab_, static_cast<float>(1.0 / sum));
        return;
      }
      const double target = static_cast<double>(params.top_p) * sum;
      // Ids lighter than this weigh less together than what lies beyond the cut. If rounding
      // makes that untrue, every id is a candidate.
      const double light = (sum - target) / (2.0 * static_cast<double>(vocab_));
      choose(seen_.max + params.temperature * static_cast<float>(std::log(light)), inverse);
      if (total_weight() < target) choose(-std::numeric_limits<float>::max(), inverse);
      scatter(cut(false, target));
    }
  }

 private:
  void one_hot() {
    std::int64_t block = 0;
    while (work_.block_max[block] != seen_.max) ++block;
    const float* best = std::find(logits_ + block * kProbsBlock, logits_ + vocab_, seen_.max);
    std::fill_n(probs_, vocab_, 0.0F);
    probs_[best - logits_] = 1.0F;
  }

  // A logit that at least k ids reach: the k-th largest maximum of a block.
  float best_block(std::int64_t k) {
    const std::int64_t blocks = blocks_of(vocab_);
    if (k >= blocks) return -std::numeric_limits<float>::max();
    std::copy_n(work_.block_max, blocks, work_.values);
    std::nth_element(work_.values, work_.values + (k - 1), work_.values + blocks, std::greater<>());
    return work_.values[k - 1];
  }

  // Candidates: all ids whose logit is at least `bound`.
  void choose(float bound, float inverse) {
    run_.collect(logits_, vocab_, work_.block_max, bound, work_.ids, work_.values, &count_);
    run_.weights(work_.values, count_, seen_.max, inverse, work_.weights);
  }

  double total_weight() {
    double sum = 0;
    run_.total(work_.weights, count_, granule_, &sum);
    return sum;
  }

  // Keeps the shortest run of leading candidates that measures at least `target`, in ids or in
  // weight rounded so that sums are exact. Returns its measure.
  double cut(bool by_count, double target) {
    float low = 0, high = 0;
    double before = narrow(by_count, target, &low, &high);
    // Candidates at or above `high` stay; those between wait in keys, by place.
    std::int64_t kept = 0, open = 0;
    for (std::int64_t i = 0; i < count_; ++i) {
      const float logit = work_.values[i];
      work_.keys[open] = rank_key(logit, i);  // places rise with ids
      open += logit >= low && logit < high ? 1 : 0;
    }
    const std::int64_t taken = take_leading(by_count, open, target, &before);
    for (std::int64_t i = 0; i < taken; ++i) work_.values[place_of(work_.keys[i])] = high;
    for (std::int64_t i = 0; i < count_; ++i) {
      const bool stays = work_.values[i] >= high;
      const std::int32_t id = work_.ids[i];
      work_.ids[kept] = id;
      work_.weights[kept] = work_.weights[i];
      work_.values[kept] = logits_[id];
      kept += stays ? 1 : 0;
    }
    count_ = kept;
    return before;
  }

  // Narrows [low, high) to few candidates around the cut; returns what lies at or above high.
  double narrow(bool by_count, double target, float* low, float* high) {
    *low = *std::min_element(work_.values, work_.values + count_);
    *high = std::nextafter(seen_.max, std::numeric_limits<float>::infinity());
    double before = 0;
    std::int64_t inside = count_, above_high = 0;
    for (int pass = 0; pass < kMaxPasses && inside > kMaxSorted; ++pass) {
      float pivots[kPivots];
      for (int p = 0; p < kPivots; ++p) {
        const float share = static_cast<float>(p + 1) / static_cast<float>(kPivots + 1);
        pivots[p] = *low * (1.0F - share) + *high * share;
      }
      if (!(pivots[0] > *low && pivots[kPivots - 1] < *high)) break;  // nothing left to split
      Above found;
      run_.above(work_.values, work_.weights, count_, pivots, granule_, &found);
      std::int64_t above_low = above_high + inside;
      for (int p = kPivots - 1; p >= 0; --p) {
        const double m = by_count ? static_cast<double>(found.count[p]) : found.mass[p];
        if (m >= target) {
          *low = pivots[p];
          above_low = found.count[p];
          break;
        }
        *high = pivots[p];
        before = m;
        above_high = found.count[p];
      }
      inside = above_low - above_high;
    }
    return before;
  }

  double measure(bool by_count, std::uint64_t key) const {
    if (by_count) return 1.0;
    return (static_cast<double>(work_.weights[place_of(key)]) + granule_) - granule_;
  }

  // Orders the first `open` keys as far as needed, adds leading ones to `sum` until it reaches
  // `target`, and returns how many.
  std::int64_t take_leading(bool by_count, std::int64_t open, double target, double* sum) {
    std::int64_t begin = 0, end = open;
    while (end - begin > kMaxSorted) {  // many ids with equal logits, or wild logits
      const std::int64_t middle = begin + (end - begin) / 2;
      std::nth_element(work_.keys + begin, work_.keys + middle, work_.keys + end);
      double left = 0;
      for (std::int64_t i = begin; i < middle; ++i) left += measure(by_count, work_.keys[i]);
      if (*sum + left >= target) {
        end = middle;
      } else {
        *sum += left;
        begin = middle;
      }
    }
    std::sort(work_.keys + begin, work_.keys + end);
    while (begin < end && *sum < target) *sum += measure(by_count, work_.keys[begin++]);
    return begin;
  }

  // probs = the candidates' weights over their sum, 0 elsewhere.
  void scatter(double sum) {
    std::fill_n(probs_, vocab_, 0.0F);
    const auto factor = static_cast<float>(1.0 / sum);
    for (std::int64_t i = 0; i < count_; ++i) probs_[work_.ids[i]] = work_.weights[i] * factor;
  }

  ProbsKernels run_;
  const float* logits_;
  std::int64_t vocab_;
  float* probs_;
  Work work_;
  double granule_;
  Scan seen_;
  std::int64_t count_ = 0;  // candidates
};

// Row t of those of all requests, which are far fewer than a row has ids.
ProbsRequest row_of(std::span<const ProbsRequest> requests, std::int64_t t) {
  const ProbsRequest* r = requests.data();
  for (; t >= r->logits.shape[0]; ++r) t -= r->logits.shape[0];
  return {r->logits.rows(t, 1), r->probs.rows(t, 1)};
}

}  // namespace

std::int64_t probs_scratch_bytes(std::int64_t vocab, int threads) {
  Scratch all = Scratch::counting();
  take_work(all, vocab, threads);
  return all.used();
}

void to_probs(const Workers& workers, std::span<const ProbsRequest> requests,
              const SamplingParams& params) {
  const std::int64_t vocab = requests.front().logits.shape[1];
  std::int64_t rows = 0;
  for (const ProbsRequest& r : requests) rows += r.logits.shape[0];
  const Workers team = with_threads(workers, std::min(rows, rows * vocab / kIdsPerThread));
  const std::int64_t blocks = blocks_of(vocab), padded = vocab + kSlack;
  Scratch scratch(workers);
  const Work all = take_work(scratch, vocab, team.threads);
  const ProbsKernels kernels = probs_kernels(workers.isa);
  parallel_for(team, rows, [&](std::int64_t t, int thread) {
    const Work mine{.keys = all.keys + vocab * thread,
                    .ids = all.ids + padded * thread,
                    .values = all.values + padded * thread,
                    .weights = all.weights + padded * thread,
                    .block_max = all.block_max + blocks * thread};
    const ProbsRequest row = row_of(requests, t);
    Row(kernels, row.logits.as<float>(), vocab, row.probs.as<float>(), mine).run(params);
  });
}

}  // namespace triforce::cpu
