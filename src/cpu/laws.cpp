#include "cpu/laws.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cpu/scratch.h"
#include "cpu/vector.h"

namespace triforce::cpu {
namespace {

constexpr std::int64_t kBlock = 64;           // ids whose maximum is kept
constexpr std::int64_t kSortAtMost = 48;      // fewer candidates than this are simply sorted
constexpr std::int64_t kIdsPerThread = 8192;  // less work than this is not worth a thread

// Largest value, whether all are finite, and the maximum of each block.
struct Scan {
  float max = -std::numeric_limits<float>::infinity();
  bool finite = true;
};

TF_INLINE void scan_body(const float* x, std::int64_t n, float* block_max, Scan* out) {
  F32x16 v;
  I32x16 good = I32x16{} - 1;
  float top = -std::numeric_limits<float>::infinity();
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = std::min(n, begin + kBlock);
    load_tail(x + begin, 0, -std::numeric_limits<float>::max(), v);
    F32x16 best = v;
    for (std::int64_t i = begin; i < end; i += kLanes) {
      if (i + kLanes <= end) {
        load16(x + i, v);
      } else {
        load_tail(x + i, end - i, -std::numeric_limits<float>::max(), v);
      }
      good &= (v - v) == F32x16{};  // inf - inf and NaN are not 0
      best = v > best ? v : best;
    }
    float m = best[0];
    for (int i = 1; i < kLanes; ++i) m = best[i] > m ? best[i] : m;
    block_max[begin / kBlock] = m;
    top = m > top ? m : top;
  }
  bool finite = true;
  for (int i = 0; i < kLanes; ++i) finite = finite && good[i] != 0;
  out->max = top;
  out->finite = finite;
}

// out = exp((x - max) * inverse_temperature); in place is fine.
TF_INLINE void weights_body(const float* x, std::int64_t n, float max, float inverse_temperature,
                            float* out) {
  F32x16 v;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    load16(x + i, v);
    v = (v - max) * inverse_temperature;
    exp16(v);
    store16(out + i, v);
  }
  if (i < n) {
    load_tail(x + i, n - i, max, v);
    v = (v - max) * inverse_temperature;
    exp16(v);
    store_tail(out + i, n - i, v);
  }
}

// Sum of the weights, each rounded to a multiple of ulp(granule): exact in any order.
TF_INLINE void total_body(const float* w, std::int64_t n, double granule, double* out) {
  F64x8 a{}, b{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    F32x8 lo, hi;
    std::memcpy(&lo, w + i, sizeof(lo));
    std::memcpy(&hi, w + i + 8, sizeof(hi));
    a += (__builtin_convertvector(lo, F64x8) + granule) - granule;
    b += (__builtin_convertvector(hi, F64x8) + granule) - granule;
  }
  a += b;
  double sum = 0;
  for (int j = 0; j < 8; ++j) sum += a[j];
  for (; i < n; ++i) sum += (static_cast<double>(w[i]) + granule) - granule;
  *out = sum;
}

TF_INLINE void scale_body(float* x, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

TF_PER_LEVEL(scan, scan_body, (const float* x, std::int64_t n, float* block_max, Scan* out),
             (x, n, block_max, out))
TF_PER_LEVEL(weights, weights_body,
             (const float* x, std::int64_t n, float max, float inverse_temperature, float* out),
             (x, n, max, inverse_temperature, out))
TF_PER_LEVEL(total, total_body, (const float* w, std::int64_t n, double granule, double* out),
             (w, n, granule, out))
TF_PER_LEVEL(scale, scale_body, (float* x, std::int64_t n, float factor), (x, n, factor))

// Rising keys are falling logits, then rising ids.
std::uint64_t rank_key(float logit, std::int64_t id) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0F);  // -0 counts as 0
  const std::uint32_t rising = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return (std::uint64_t{~rising} << 32U) | static_cast<std::uint32_t>(id);
}
std::uint32_t id_of(std::uint64_t key) { return static_cast<std::uint32_t>(key); }

std::int64_t blocks_of(std::int64_t vocab) { return (vocab + kBlock - 1) / kBlock; }

// One row in work. `law` holds unnormalised weights of candidates until normalise().
class Row {
 public:
  Row(Isa isa, const float* logits, std::int64_t vocab, float* law, std::uint64_t* keys,
      float* block_max, float* values)
      : isa_(isa),
        logits_(logits),
        vocab_(vocab),
        law_(law),
        keys_(keys),
        block_max_(block_max),
        values_(values),
        granule_(static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(vocab)))) {}

  void run(const LawParams& params) {
    Scan s;
    scan(isa_)(logits_, vocab_, block_max_, &s);
    if (!s.finite) {
      std::fill_n(law_, vocab_, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    if (params.temperature <= 0) {
      std::int64_t block = 0;
      while (block_max_[block] != s.max) ++block;
      const float* best = std::find(logits_ + block * kBlock, logits_ + vocab_, s.max);
      std::fill_n(law_, vocab_, 0.0F);
      law_[best - logits_] = 1.0F;
      return;
    }
    const float inverse = 1.0F / params.temperature;
    const bool top_k = params.top_k > 0 && params.top_k < vocab_;
    if (top_k) {
      keep_best(params.top_k, s.max, inverse);
    } else {
      weights(isa_)(logits_, vocab_, s.max, inverse, law_);
      total(isa_)(law_, vocab_, granule_, &total_);
      if (params.top_p >= 1) {
        scale(isa_)(law_, vocab_, static_cast<float>(1.0 / total_));
        return;
      }
    }
    if (params.top_p < 1) {
      const double target = static_cast<double>(params.top_p) * total_;
      if (!top_k) collect_heavy((total_ - target) / (2.0 * static_cast<double>(vocab_)), target);
      cut_at(target);
    }
    normalise();
  }

 private:
  double mass(std::uint64_t key) const {
    return (static_cast<double>(law_[id_of(key)]) + granule_) - granule_;
  }
  double mass(std::int64_t begin, std::int64_t end) const {
    double sum = 0;
    for (std::int64_t i = begin; i < end; ++i) sum += mass(keys_[i]);
    return sum;
  }

  // Candidates: the k best logits, their weights in law_, total_.
  void keep_best(std::int64_t k, float max, float inverse) {
    const std::int64_t blocks = blocks_of(vocab_);
    // k blocks reach the k-th largest block maximum, so at least k ids do.
    float bound = -std::numeric_limits<float>::max();
    if (k < blocks) {
      std::copy_n(block_max_, blocks, values_);
      std::nth_element(values_, values_ + (k - 1), values_ + blocks, std::greater<>());
      bound = values_[k - 1];
    }
    collect(logits_, bound, block_max_);
    std::nth_element(keys_, keys_ + (k - 1), keys_ + count_);
    count_ = k;
    for (std::int64_t i = 0; i < k; ++i) values_[i] = logits_[id_of(keys_[i])];
    weights(isa_)(values_, k, max, inverse, values_);
    total(isa_)(values_, k, granule_, &total_);
    for (std::int64_t i = 0; i < k; ++i) law_[id_of(keys_[i])] = values_[i];
  }

  // Candidates: every id whose entry of x is at least `bound`. block_max may be null.
  void collect(const float* x, float bound, const float* block_max) {
    count_ = 0;
    for (std::int64_t begin = 0; begin < vocab_; begin += kBlock) {
      if (block_max != nullptr && block_max[begin / kBlock] < bound) continue;
      const std::int64_t end = std::min(vocab_, begin + kBlock);
      for (std::int64_t i = begin; i < end; ++i) {
        keys_[count_] = rank_key(logits_[i], i);
        count_ += x[i] >= bound ? 1 : 0;
      }
    }
  }

  // Candidates that hold at least `target`: all ids lighter than `bound` together weigh less than
  // what lies beyond the cut, unless rounding says otherwise.
  void collect_heavy(double bound, double target) {
    collect(law_, static_cast<float>(bound), nullptr);
    if (mass(0, count_) < target) collect(law_, 0.0F, nullptr);
  }

  // Keeps the shortest run of leading candidates that weighs at least `target`.
  void cut_at(double target) {
    std::int64_t begin = 0, end = count_;
    double before = 0;
    while (end - begin > kSortAtMost) {
      const std::int64_t middle = begin + (end - begin) / 2;
      std::nth_element(keys_ + begin, keys_ + middle, keys_ + end);
      const double left = mass(begin, middle);
      if (before + left >= target) {
        end = middle;
      } else {
        before += left;
        begin = middle;
      }
    }
    std::sort(keys_ + begin, keys_ + end);
    count_ = end;
    for (std::int64_t i = begin; i < end; ++i) {
      before += mass(keys_[i]);
      if (before >= target) {
        count_ = i + 1;
        break;
      }
    }
    total_ = mass(0, count_);
  }

  // law_ = the candidates' weights over their sum, 0 elsewhere.
  void normalise() {
    for (std::int64_t i = 0; i < count_; ++i) values_[i] = law_[id_of(keys_[i])];
    std::fill_n(law_, vocab_, 0.0F);
    const auto factor = static_cast<float>(1.0 / total_);
    for (std::int64_t i = 0; i < count_; ++i) law_[id_of(keys_[i])] = values_[i] * factor;
  }

  Isa isa_;
  const float* logits_;
  std::int64_t vocab_;
  float* law_;
  std::uint64_t* keys_;
  float* block_max_;
  float* values_;
  double granule_;
  std::int64_t count_ = 0;
  double total_ = 0;
};

}  // namespace

std::int64_t laws_scratch_bytes(std::int64_t vocab, int threads) {
  // keys, values, block maxima; keys have one entry of slack for the branch-free collection
  return threads * (round_up((vocab + 1) * 8, 64) + round_up(vocab * 4, 64) +
                    round_up(blocks_of(vocab) * 4, 64));
}

void to_laws(const Context& context, TensorView logits, const LawParams& params, TensorView laws) {
  TF_CHECK(logits.rank == 2 && laws.rank == 2 && logits.dtype == DType::kF32 &&
               laws.dtype == DType::kF32 && logits.shape == laws.shape && logits.shape[1] > 0,
           "to_laws: logits [{}, {}], laws [{}, {}]", logits.shape[0], logits.shape[1],
           laws.shape[0], laws.shape[1]);
  TF_CHECK(logits.data != laws.data, "to_laws: logits and laws are the same memory");
  TF_CHECK(params.temperature >= 0 && params.top_p > 0 && params.top_k >= 0,
           "to_laws: temperature {}, top_p {}, top_k {}", params.temperature, params.top_p,
           params.top_k);
  const std::int64_t rows = logits.shape[0], vocab = logits.shape[1];
  Context team = context;
  team.threads = static_cast<int>(std::clamp<std::int64_t>(
      rows * vocab / kIdsPerThread, 1, std::min<std::int64_t>(rows, context.threads)));
  Scratch scratch(context);
  auto* keys = scratch.take<std::uint64_t>((vocab + 1) * team.threads);
  auto* values = scratch.take<float>(vocab * team.threads);
  auto* block_max = scratch.take<float>(blocks_of(vocab) * team.threads);
  parallel_for(team, rows, [&](std::int64_t t, int thread) {
    Row(context.isa, logits.as<float>() + t * logits.stride[0], vocab,
        laws.as<float>() + t * laws.stride[0], keys + (vocab + 1) * thread,
        block_max + blocks_of(vocab) * thread, values + vocab * thread)
        .run(params);
  });
}

}  // namespace triforce::cpu
