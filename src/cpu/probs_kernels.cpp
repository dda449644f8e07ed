#include "cpu/probs_kernels.h"

#include <limits>

#include "cpu/vector.h"

namespace triforce::cpu {
namespace {

template <int kWidth>
TF_INLINE void scan_body(const float* x, std::int64_t n, float* block_max, Scan* out) {
  using F32 = typename Lanes<kWidth>::F32;
  using I32 = typename Lanes<kWidth>::I32;
  F32 v;
  I32 good = I32{} - 1;
  float top = -std::numeric_limits<float>::infinity();
  for (std::int64_t begin = 0; begin < n; begin += kProbsBlock) {
    const std::int64_t end = std::min(n, begin + kProbsBlock);
    F32 best = F32{} - std::numeric_limits<float>::max();
    for (std::int64_t i = begin; i < end; i += kWidth) {
      if (i + kWidth <= end) {
        load(x + i, v);
      } else {
        load_tail(x + i, end - i, x[i], v);
      }
      // inf - inf and NaN are not 0.
      good &= (v - v) == F32{};  // NOLINT(misc-redundant-expression)
      best = v > best ? v : best;
    }
    float m = best[0];
    for (int i = 1; i < kWidth; ++i) m = best[i] > m ? best[i] : m;
    block_max[begin / kProbsBlock] = m;
    top = m > top ? m : top;
  }
  bool finite = true;
  for (int i = 0; i < kWidth; ++i) finite = finite && good[i] != 0;
  out->max = top;
  out->finite = finite;
}

// out = exp((x - max) * inverse_temperature); in place is fine.
template <int kWidth>
TF_INLINE void weights_body(const float* x, std::int64_t n, float max, float inverse_temperature,
                            float* out) {
  typename Lanes<kWidth>::F32 v;
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    load(x + i, v);
    v = (v - max) * inverse_temperature;
    exponential<kWidth>(v);
    store(out + i, v);
  }
  if (i < n) {
    load_tail(x + i, n - i, max, v);
    v = (v - max) * inverse_temperature;
    exponential<kWidth>(v);
    store_tail(out + i, n - i, v);
  }
}

// Sum of the weights, each rounded to a multiple of ulp(granule): exact in any order.
template <int kWidth>
TF_INLINE void total_body(const float* w, std::int64_t n, double granule, double* out) {
  using F64 = typename Lanes<kWidth>::F64;
  constexpr int kHalf = kWidth / 2;
  F64 a{}, b{};
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    typename Lanes<kWidth>::Half low, high;
    load(w + i, low);
    load(w + i + kHalf, high);
    a += (__builtin_convertvector(low, F64) + granule) - granule;
    b += (__builtin_convertvector(high, F64) + granule) - granule;
  }
  a += b;
  double sum = 0;
  for (int j = 0; j < kHalf; ++j) sum += a[j];
  for (; i < n; ++i) sum += (static_cast<double>(w[i]) + granule) - granule;
  *out = sum;
}

TF_INLINE void scale_body(float* x, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

template <int kWidth>
TF_INLINE void add_above(const typename Lanes<kWidth>::F32& v, const typename Lanes<kWidth>::F32& w,
                         const float* pivots, double granule, typename Lanes<kWidth>::I32* counts,
                         typename Lanes<kWidth>::F64* masses) {
  using L = Lanes<kWidth>;
  typename L::Half half[2];
  std::memcpy(half, &w, sizeof(w));
  const typename L::F64 low =
      (__builtin_convertvector(half[0], typename L::F64) + granule) - granule;
  const typename L::F64 high =
      (__builtin_convertvector(half[1], typename L::F64) + granule) - granule;
  for (int p = 0; p < kPivots; ++p) {
    const typename L::I32 in = v >= pivots[p];
    counts[p] -= in;
    typename L::HalfI32 part[2];
    std::memcpy(part, &in, sizeof(in));
    masses[p] += reinterpret_cast<typename L::F64>(
        reinterpret_cast<typename L::I64>(low) & __builtin_convertvector(part[0], typename L::I64));
    masses[p] +=
        reinterpret_cast<typename L::F64>(reinterpret_cast<typename L::I64>(high) &
                                          __builtin_convertvector(part[1], typename L::I64));
  }
}

template <int kWidth>
TF_INLINE void above_body(const float* x, const float* w, std::int64_t n, const float* pivots,
                          double granule, Above* out) {
  using L = Lanes<kWidth>;
  typename L::I32 counts[kPivots] = {};
  typename L::F64 masses[kPivots] = {};
  typename L::F32 v, u{};
  for (std::int64_t i = 0; i < n; i += kWidth) {
    if (i + kWidth <= n) {
      load(x + i, v);
      load(w + i, u);
    } else {
      load_tail(x + i, n - i, -std::numeric_limits<float>::infinity(), v);
      load_tail(w + i, n - i, 0, u);
    }
    add_above<kWidth>(v, u, pivots, granule, counts, masses);
  }
  for (int p = 0; p < kPivots; ++p) {
    out->count[p] = 0;
    out->mass[p] = 0;
    for (int i = 0; i < kWidth; ++i) out->count[p] += counts[p][i];
    for (int i = 0; i < kWidth / 2; ++i) out->mass[p] += masses[p][i];
  }
}

// ids = those of x that are at least `bound`, values = x there; both with room for 16 more.
// Blocks whose maximum is below are not read.
TF_INLINE void collect_body(const float* x, std::int64_t n, const float* block_max, float bound,
                            std::int32_t* ids, float* values, std::int64_t* count) {
  std::int64_t found = 0;
  for (std::int64_t begin = 0; begin < n; begin += kProbsBlock) {
    if (block_max[begin / kProbsBlock] < bound) continue;
    const std::int64_t end = begin + kProbsBlock < n ? begin + kProbsBlock : n;
    for (std::int64_t i = begin; i < end; ++i) {
      ids[found] = static_cast<std::int32_t>(i);
      values[found] = x[i];
      found += x[i] >= bound ? 1 : 0;
    }
  }
  *count = found;
}

TF_PER_LEVEL(scan, scan_body<kWidth>, (const float* x, std::int64_t n, float* block_max, Scan* out),
             (x, n, block_max, out))
TF_PER_LEVEL(weights, weights_body<kWidth>,
             (const float* x, std::int64_t n, float max, float inverse_temperature, float* out),
             (x, n, max, inverse_temperature, out))
TF_PER_LEVEL(total, total_body<kWidth>,
             (const float* w, std::int64_t n, double granule, double* out), (w, n, granule, out))
TF_PER_LEVEL(above, above_body<kWidth>,
             (const float* x, const float* w, std::int64_t n, const float* pivots, double granule,
              Above* out),
             (x, w, n, pivots, granule, out))
TF_PER_LEVEL(scale, scale_body, (float* x, std::int64_t n, float factor), (x, n, factor))
TF_PER_LEVEL(collect, collect_body,
             (const float* x, std::int64_t n, const float* block_max, float bound,
              std::int32_t* ids, float* values, std::int64_t* count),
             (x, n, block_max, bound, ids, values, count))

}  // namespace

ProbsKernels vector_probs_kernels(Isa isa) {
  return {.scan = scan(isa),
          .weights = weights(isa),
          .total = total(isa),
          .above = above(isa),
          .scale = scale(isa),
          .collect = collect(isa)};
}

}  // namespace triforce::cpu
