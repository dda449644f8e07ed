// Where a pair of dimensions of a product for q, k and v goes.
#pragma once
#include "kernels/element.cuh"
#include "kernels/kv_layout.cuh"

namespace triforce::kernels {

// Backend::rope_append() of dimensions j and j + d / 2 of one head of one token.
template <class T>
struct RopeAppend {
  const std::int32_t* positions;
  Angles angles;
  T* q;
  std::int64_t q_stride;  // elements between tokens
  int heads;              // of q
  KvView kv;
  int tokens;  // of the pass

  // head: those of q, then of k, then of v.
  TF_DEVICE void operator()(int head, int token, int j, T low, T high) const {
    const int half = kv.head_dim / 2;
    const bool is_q = head < heads, is_k = !is_q && head < heads + kv.kv_heads;
    if (is_q || (is_k && !kv.rotate_on_read)) {
      const std::int64_t at = positions[token] * angles.stride + j;
      const float c = angles.cos[at], s = angles.sin[at];
      const float a = to_float(low), b = to_float(high);
      low = from_float<T>(fmaf(-b, s, a * c));
      high = from_float<T>(fmaf(a, s, b * c));
    }
    if (is_q) {
      T* const out = q + token * q_stride + std::int64_t{head} * kv.head_dim;
      out[j] = low;
      out[j + half] = high;
      return;
    }
    const std::int64_t row = *kv.length - tokens + token;
    if (row < 0 || row >= kv.capacity) return;
    const int nth = head - heads - (is_k ? 0 : kv.kv_heads);
    T* const rows = static_cast<T*>(is_k ? kv.k : kv.v) + nth * kv.head_stride;
    rows[element_of(kv, is_k, row, j)] = low;
    rows[element_of(kv, is_k, row, j + half)] = high;
  }
};

template <class T>
RopeAppend<T> rope_append_of(const TensorView& positions, const RopeView& rope, const TensorView& q,
                             const KvView& kv) {
  return {static_cast<const std::int32_t*>(positions.data),
          angles_of(rope),
          static_cast<T*>(q.data),
          q.stride[0],
          static_cast<int>(q.shape[1]),
          kv,
          static_cast<int>(q.shape[0])};
}

}  // namespace triforce::kernels
