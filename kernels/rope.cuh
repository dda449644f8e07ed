// Where a pair of dimensions of a product for q, k and v goes.
#pragma once
#include <algorithm>
#include <limits>
#include <span>

#include "kernels/element.cuh"
#include "kernels/kv_layout.cuh"

namespace triforce::kernels {

// Backend::rope_append() of dimensions j and j + d / 2 of one head of one token, of the heads of
// ranges that follow each other.
template <class T>
struct RopeAppend {
  const std::int32_t* positions;
  Angles angles;
  T* q;
  std::int64_t q_stride;  // elements between tokens
  int heads, kv_heads;    // of q, of all ranges
  int tokens;             // of each lane
  // Where the rows of each are; they differ in that alone. Of one that is not there first_head is
  // past all heads.
  KvLanes ranges[kMaxHeadRanges];

  TF_DEVICE int head_dim() const { return ranges[0].kv.head_dim; }
  // head: those of q, then of k, then of v. row: of the pass.
  TF_DEVICE void operator()(int head, int row, int j, T low, T high) const {
    const int lane = ranges[0].count > 1 ? row / tokens : 0;
    turn(head, row, j, low, high);
    put(target_of(head, lane), row - lane * tokens, j, low, high);
  }
  TF_DEVICE void turn(int head, int row, int j, T& low, T& high) const {
    if (head >= (ranges[0].kv.format.rotate_on_read ? heads : heads + kv_heads)) return;
    const std::int64_t at = positions[row] * angles.stride + j;
    const float c = angles.cos[at], s = angles.sin[at];
    const float a = to_float(low), b = to_float(high);
    low = from_float<T>(fmaf(-b, s, a * c));
    high = from_float<T>(fmaf(a, s, b * c));
  }
  // Where a head of a lane goes: to q, or to rows of `kv`, which takes tokens from `new_from` on.
  struct Target {
    bool is_q, is_k;
    T* to;
    KvView kv;
    std::int64_t row_of_first;
    int new_from;
  };
  TF_DEVICE Target target_of(int head, int lane) const {
    Target t{head < heads, head >= heads && head < heads + kv_heads, nullptr, {}, 0, 0};
    if (t.is_q) {
      t.to = q + lane * tokens * q_stride + std::int64_t{head} * head_dim();
      return t;
    }
    const KvView& first = ranges[0].kv;
    const int kv_head = first.first_head + head - heads - (t.is_k ? 0 : kv_heads);
    t.kv = lane_of(range_of(kv_head), static_cast<unsigned>(lane));
    t.to =
        static_cast<T*>(t.is_k ? t.kv.k : t.kv.v) + (kv_head - t.kv.first_head) * t.kv.head_stride;
    t.row_of_first = first.length[lane] - tokens;
    t.new_from = first.appended == nullptr ? 0 : tokens - first.appended[lane];
    return t;
  }
  TF_DEVICE void put(const Target& t, int token, int j, T low, T high) const {
    const int half = head_dim() / 2;
    T* const to = t.to;
    TF_IN_DEVICE_MEMORY(to);  // one of several pointers
    if (t.is_q) {
      T* const out = to + token * q_stride;
      out[j] = low;
      out[j + half] = high;
      return;
    }
    const std::int64_t row = t.row_of_first + token;
    if (row < 0 || row >= t.kv.capacity || token < t.new_from) return;
    to[element_of(t.kv, t.is_k, row, j)] = low;
    to[element_of(t.kv, t.is_k, row, j + half)] = high;
  }

 private:
  // By value: parameters are indexed by constants alone.
  TF_DEVICE KvLanes range_of(int kv_head) const {
    KvLanes range = ranges[0];
    TF_UNROLL
    for (int i = 1; i < kMaxHeadRanges; ++i) {
      if (kv_head >= ranges[i].kv.first_head) range = ranges[i];
    }
    return range;
  }
};

template <class T>
RopeAppend<T> rope_append_of(const TensorView& positions, const RopeView& rope, const TensorView& q,
                             std::span<const KvLanes> ranges) {
  RopeAppend<T> append{static_cast<const std::int32_t*>(positions.data),
                       angles_of(rope),
                       static_cast<T*>(q.data),
                       q.stride[0],
                       static_cast<int>(q.shape[1]),
                       kv_heads_of(ranges),
                       static_cast<int>(q.shape[0]) / ranges.front().count,
                       {}};
  for (KvLanes& none : append.ranges) none.kv.first_head = std::numeric_limits<int>::max();
  std::copy(ranges.begin(), ranges.end(), append.ranges);
  return append;
}

}  // namespace triforce::kernels
