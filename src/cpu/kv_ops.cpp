#include "cpu/kv_ops.h"

#include <algorithm>

#include "core/elements.h"
#include "cpu/attention_pass.h"
#include "cpu/key_rows.h"

namespace triforce::cpu {
namespace {

template <class F>
void write_v(const KvView& kv, std::int64_t head, std::int64_t row, const float* x) {
  constexpr int kPair = pairing(F::kType);
  auto* to = reinterpret_cast<typename F::Stored*>(v_head(kv, head)) +
             v_element(kPair, kv.head_dim, row, 0);
  for (int i = 0; i < kv.head_dim; ++i) to[i * kPair] = F::store(x[i]);
}

}  // namespace

void rope_append(const Workers& workers, TensorView qkv, TensorView positions, const RopeView& rope,
                 TensorView q, const KvView& kv) {
  const std::int64_t length = *kv.length;
  const std::int64_t tokens = q.shape[0], heads = q.shape[1], first_row = length - tokens;
  const int d = kv.head_dim;
  const QkvColumns columns = qkv_columns(kv, heads / kv.kv_heads);
  const auto* at = positions.as<std::int32_t>();
  const auto* cos = rope.cos.as<float>();
  const auto* sin = rope.sin.as<float>();
  const auto token = [&](std::int64_t t) {
    const float* from = qkv.as<float>() + t * qkv.stride[0];
    const float* c = cos + at[t] * rope.cos.stride[0];
    const float* s = sin + at[t] * rope.sin.stride[0];
    float turned[kMaxHeadDim];
    for (std::int64_t h = 0; h < heads; ++h) {
      rotate_row(from + columns.q + h * d, c, s, d,
                 q.as<float>() + t * q.stride[0] + h * q.stride[1]);
    }
    visit_float(kv.format.type, [&](auto format) {
      using F = decltype(format);
      for (std::int64_t h = 0; h < kv.kv_heads; ++h) {
        const float* key = from + columns.k + h * d;
        if (!kv.format.rotate_on_read) {
          rotate_row(key, c, s, d, turned);
          key = turned;
        }
        write_k<F>(kv, h, first_row + t, key);
        write_v<F>(kv, h, first_row + t, from + columns.v + h * d);
      }
    });
  };
  // Whole key blocks, so that no two threads write the same line.
  const std::int64_t first_block = first_row / kKeyBlock;
  const std::int64_t blocks = ceil_div(length, kKeyBlock) - first_block;
  parallel_for(with_threads_for(workers, qkv.bytes()), blocks, [&](std::int64_t b, int) {
    const std::int64_t begin = (first_block + b) * kKeyBlock - first_row;
    const std::int64_t end = std::min(begin + kKeyBlock, tokens);
    for (std::int64_t t = std::max<std::int64_t>(begin, 0); t < end; ++t) token(t);
  });
}

std::int64_t attention_scratch_bytes(const Backend::ScratchShape& shape, int threads) {
  return exact_scratch_bytes(shape.most_exact_rows(), shape.heads, shape.kv_heads, shape.head_dim,
                             shape.context, shape.chunk_size, threads);
}

std::int64_t kv_scratch_bytes(const Backend::ScratchShape& shape, int threads) {
  if (shape.heads == 0 || shape.kv_heads == 0) return 0;
  const std::int64_t exact = attention_scratch_bytes(shape, threads);
  const std::int64_t prefill = prefill_scratch_bytes(
      static_cast<int>(ceil_div(shape.heads, shape.kv_heads)), shape.head_dim, threads);
  const std::int64_t chunks =
      shape.chunk_size > 0 ? chunk_scratch_bytes(shape.kv_heads, shape.context, shape.chunk_size)
                           : 0;
  return std::max({exact, prefill, chunks});
}

}  // namespace triforce::cpu
