#include "cpu/probs_kernels.h"

#include <limits>

#include "cpu/vector.h"

namespace triforce::cpu {
namespace {

using I32x8 = std::int32_t __attribute__((vector_size(32)));
using I64x8 = std::int64_t __attribute__((vector_size(64)));

TF_INLINE void scan_body(const float* x, std::int64_t n, float* block_max, Scan* out) {
  F32x16 v;
  I32x16 good = I32x16{} - 1;
  float top = -std::numeric_limits<float>::infinity();
  for (std::int64_t begin = 0; begin < n; begin += kProbsBlock) {
    const std::int64_t end = std::min(n, begin + kProbsBlock);
    F32x16 best = F32x16{} - std::numeric_limits<float>::max();
    for (std::int64_t i = begin; i < end; i += kLanes) {
      if (i + kLanes <= end) {
        load16(x + i, v);
      } else {
        load_tail(x + i, end - i, x[i], v);
      }
      // inf - inf and NaN are not 0.
      good &= (v - v) == F32x16{};  // NOLINT(misc-redundant-expression)
      best = v > best ? v : best;
    }
    float m = best[0];
    for (int i = 1; i < kLanes; ++i) m = best[i] > m ? best[i] : m;
    block_max[begin / kProbsBlock] = m;
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

TF_INLINE void add_above(const F32x16& v, const F32x16& w, const float* pivots, double granule,
                         I32x16* counts, F64x8* masses) {
  F32x8 half[2];
  std::memcpy(half, &w, sizeof(w));
  const F64x8 low = (__builtin_convertvector(half[0], F64x8) + granule) - granule;
  const F64x8 high = (__builtin_convertvector(half[1], F64x8) + granule) - granule;
  for (int p = 0; p < kPivots; ++p) {
    const I32x16 in = v >= pivots[p];
    counts[p] -= in;
    I32x8 part[2];
    std::memcpy(part, &in, sizeof(in));
    masses[p] += reinterpret_cast<F64x8>(reinterpret_cast<I64x8>(low) &
                                         __builtin_convertvector(part[0], I64x8));
    masses[p] += reinterpret_cast<F64x8>(reinterpret_cast<I64x8>(high) &
                                         __builtin_convertvector(part[1], I64x8));
  }
}

TF_INLINE void above_body(const float* x, const float* w, std::int64_t n, const float* pivots,
                          double granule, Above* out) {
  I32x16 counts[kPivots] = {};
  F64x8 masses[kPivots] = {};
  F32x16 v, u{};
  for (std::int64_t i = 0; i < n; i += kLanes) {
    if (i + kLanes <= n) {
      load16(x + i, v);
      load16(w + i, u);
    } else {
      load_tail(x + i, n - i, -std::numeric_limits<float>::infinity(), v);
      load_tail(w + i, n - i, 0, u);
    }
    add_above(v, u, pivots, granule, counts, masses);
  }
  for (int p = 0; p < kPivots; ++p) {
    out->count[p] = 0;
    out->mass[p] = 0;
    for (int i = 0; i < kLanes; ++i) out->count[p] += counts[p][i];
    for (int i = 0; i < 8; ++i) out->mass[p] += masses[p][i];
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

TF_PER_LEVEL(scan, scan_body, (const float* x, std::int64_t n, float* block_max, Scan* out),
             (x, n, block_max, out))
TF_PER_LEVEL(weights, weights_body,
             (const float* x, std::int64_t n, float max, float inverse_temperature, float* out),
             (x, n, max, inverse_temperature, out))
TF_PER_LEVEL(total, total_body, (const float* w, std::int64_t n, double granule, double* out),
             (w, n, granule, out))
TF_PER_LEVEL(above, above_body,
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
