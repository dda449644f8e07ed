// Keys from their low-rank form (ShadowKV, arXiv 2410.21465).
#include <algorithm>

#include "core/elements.h"
#include "cpu/attention_pass.h"
#include "cpu/key_rows.h"
#include "cpu/kv_ops.h"

namespace triforce::cpu {
namespace {

// Rows that are computed with one reading of the basis.
constexpr std::int64_t kRows = 16;

// A row of the destination and its token.
struct Expanded {
  std::int64_t row, token;
};

// keys[rows][d] = the rows' coefficients times basis [rank, d].
template <class F>
void multiply(const LowRankKeys& keys, std::int64_t head, const Expanded* rows, std::int64_t n,
              int d, float* out) {
  using Stored = typename F::Stored;
  const std::int64_t rank = keys.coefficients.shape[1];
  const auto* a = keys.coefficients.as<const Stored>();
  const auto* basis = keys.basis.as<const Stored>() + head * rank * d;
  std::fill_n(out, n * d, 0.0F);
  for (std::int64_t i = 0; i < rank; ++i) {
    float wide[kMaxHeadDim];
    for (int j = 0; j < d; ++j) wide[j] = F::load(basis[i * d + j]);
    for (std::int64_t r = 0; r < n; ++r) {
      const float x = F::load(a[rows[r].token * rank + i]);
      float* const sum = out + r * d;
      for (int j = 0; j < d; ++j) sum[j] += x * wide[j];
    }
  }
}

}  // namespace

void read_keys(const Workers& workers, const KvView& src, std::int64_t row, std::int64_t count,
               const RopeView& rope, TensorView out) {
  const int d = src.head_dim, half = d / 2;
  const Workers c = with_threads_for(workers, src.kv_heads * count * src.format.bytes(d) * 4);
  parallel_for(c, src.kv_heads * count, [&](std::int64_t i, int) {
    const std::int64_t head = i % src.kv_heads, r = i / src.kv_heads;
    float* const to = out.as<float>() + r * out.stride[0] + head * d;
    visit_float(src.format.type,
                [&](auto format) { read_k<decltype(format)>(src, head, row + r, to); });
    if (rope.cos.data == nullptr) return;
    const float* cos = rope.cos.as<const float>() + (row + r) * half;
    const float* sin = rope.sin.as<const float>() + (row + r) * half;
    for (int j = 0; j < half; ++j) {
      const float low = to[j], high = to[j + half];
      const float size = cos[j] * cos[j] + sin[j] * sin[j];  // tables may carry a factor
      to[j] = (low * cos[j] + high * sin[j]) / size;
      to[j + half] = (high * cos[j] - low * sin[j]) / size;
    }
  });
}

void expand_keys(const Workers& workers, const LowRankKeys& keys, TensorView ids, int chunk,
                 std::int64_t first, const RopeView& rope, const KvView& dst) {
  const std::int64_t begin = first * chunk, end = ids.shape[1] * chunk;
  const std::int64_t units = ceil_div(end - begin, kRows), rank = keys.coefficients.shape[1];
  const int d = dst.head_dim;
  // As much work as reading so many bytes, about.
  const Workers c = with_threads_for(workers, dst.kv_heads * (end - begin) * rank * d);
  parallel_for(c, dst.kv_heads * units, [&](std::int64_t unit, int) {
    const std::int64_t head = unit / units, from = begin + unit % units * kRows;
    const auto* const id = ids.as<const std::int32_t>() + head * ids.stride[0];
    Expanded rows[kRows];
    std::int64_t n = 0;
    for (std::int64_t row = from; row < std::min(from + kRows, end); ++row) {
      const std::int64_t token = std::int64_t{id[row / chunk]} * chunk;
      if (token + chunk <= keys.coefficients.shape[0]) rows[n++] = {row, token + row % chunk};
    }
    float out[kRows * kMaxHeadDim];
    visit_float(dst.format.type, [&](auto format) {
      using F = decltype(format);
      multiply<F>(keys, head, rows, n, d, out);
      for (std::int64_t r = 0; r < n; ++r) {
        const std::int64_t angle = rows[r].token * rope.cos.stride[0];
        float turned[kMaxHeadDim];
        rotate_row(out + r * d, rope.cos.as<const float>() + angle,
                   rope.sin.as<const float>() + angle, d, turned);
        write_k<F>(dst, head, rows[r].row, turned);
      }
    });
  });
}

}  // namespace triforce::cpu
