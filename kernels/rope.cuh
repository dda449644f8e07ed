// Where a pair of dimensions of a product for q, k and v goes.
#pragma once
#include <algorithm>
#include <limits>
#include <span>

#include "kernels/element.cuh"
#include "kernels/kv_layout.cuh"

namespace triforce::kernels {

// Backend::rope_append() of dimensions j and j + d / 2 of one head of one token, of the heads of
// parts that follow each other.
template <class T>
struct RopeAppend {
  const std::int32_t* positions;
  Angles angles;
  T* q;
  std::int64_t q_stride;  // elements between tokens
  int heads, kv_heads;    // of q, of all parts
  int tokens;             // of the pass
  // Where the rows of each are; they differ in that alone. Of one that is not there first_head is
  // past all heads.
  KvView parts[kMaxKvParts];

  TF_DEVICE int head_dim() const { return parts[0].head_dim; }
  // head: those of q, then of k, then of v.
  TF_DEVICE void operator()(int head, int token, int j, T low, T high) const {
    turn(head, token, j, low, high);
    put(head, token, j, low, high);
  }
  TF_DEVICE void turn(int head, int token, int j, T& low, T& high) const {
    if (head >= (parts[0].rotate_on_read ? heads : heads + kv_heads)) return;
    const std::int64_t at = positions[token] * angles.stride + j;
    const float c = angles.cos[at], s = angles.sin[at];
    const float a = to_float(low), b = to_float(high);
    low = from_float<T>(fmaf(-b, s, a * c));
    high = from_float<T>(fmaf(a, s, b * c));
  }
  TF_DEVICE void put(int head, int token, int j, T low, T high) const {
    const int half = head_dim() / 2;
    const bool is_q = head < heads, is_k = !is_q && head < heads + kv_heads;
    if (is_q) {
      T* const out = q + token * q_stride + std::int64_t{head} * head_dim();
      out[j] = low;
      out[j + half] = high;
      return;
    }
    const std::int64_t row = *parts[0].length - tokens + token;
    if (row < 0 || row >= parts[0].capacity) return;
    const int kv_head = parts[0].first_head + head - heads - (is_k ? 0 : kv_heads);
    const KvView kv = part_of(kv_head);
    T* const rows =
        static_cast<T*>(is_k ? kv.k : kv.v) + (kv_head - kv.first_head) * kv.head_stride;
    rows[element_of(kv, is_k, row, j)] = low;
    rows[element_of(kv, is_k, row, j + half)] = high;
  }

 private:
  // By value: parameters are indexed by constants alone.
  TF_DEVICE KvView part_of(int kv_head) const {
    KvView kv = parts[0];
    TF_UNROLL
    for (int i = 1; i < kMaxKvParts; ++i) {
      if (kv_head >= parts[i].first_head) kv = parts[i];
    }
    return kv;
  }
};

template <class T>
RopeAppend<T> rope_append_of(const TensorView& positions, const RopeView& rope, const TensorView& q,
                             std::span<const KvView> parts) {
  RopeAppend<T> append{static_cast<const std::int32_t*>(positions.data),
                       angles_of(rope),
                       static_cast<T*>(q.data),
                       q.stride[0],
                       static_cast<int>(q.shape[1]),
                       kv_heads_of(parts),
                       static_cast<int>(q.shape[0]),
                       {}};
  for (KvView& none : append.parts) none.first_head = std::numeric_limits<int>::max();
  std::copy(parts.begin(), parts.end(), append.parts);
  return append;
}

}  // namespace triforce::kernels
