// What the attention kernels share: tiles of keys and values in shared memory, queries as operands.
#pragma once
#include <cmath>

#include "kernels/element.cuh"
#include "kernels/kv_layout.cuh"
#include "kernels/ptx.cuh"

namespace triforce::kernels {

constexpr int kAttentionWarps = 4, kAttentionThreads = kAttentionWarps * 32;
constexpr int kTileKeys = 64;  // 16 a warp where keys are the rows of a product
constexpr float kLog2e = 1.4426950408889634F;

struct Queries {
  const void* data;
  std::int64_t token_stride, head_stride;  // elements
  int tokens, group;                       // group: query heads of one KV head
};

// (token, head of the group) of packed row r.
TF_DEVICE std::int64_t query_offset(const Queries& q, int kv_head, int row) {
  const int token = row / q.group, head = kv_head * q.group + row % q.group;
  return token * q.token_stride + head * q.head_stride;
}
// Keys that packed row r may see, of a cache that holds `length`.
TF_DEVICE std::int64_t visible_keys(const Queries& q, std::int64_t length, int row) {
  return length - q.tokens + row / q.group + 1;
}

// 16-byte parts of one tile, of keys or of values.
template <int kDim>
constexpr int kTileParts = kTileKeys* kDim / kPartElements;

// Copies rows [first, first + 64) of `rows` (kv.k or kv.v) as they lie; zeros past the capacity.
template <int kDim>
TF_DEVICE void load_tile(const void* rows, const KvView& kv, int head, std::int64_t first,
                         uint4* to) {
  constexpr int kParts = kDim / kPartElements;
  const auto* const from =
      static_cast<const std::uint16_t*>(rows) + head * kv.head_stride + first * kDim;
  TF_UNROLL
  for (int i = 0; i < kTileParts<kDim> / kAttentionThreads; ++i) {
    const int part = i * kAttentionThreads + static_cast<int>(threadIdx.x);
    const bool there = first + part / kParts < kv.capacity;
    ptx::cp_async16(to + part, from + (there ? std::int64_t{part} * kPartElements : 0), there);
  }
}

// Online softmax of one row over keys seen so far, in base 2: m = max s, l = sum 2^(s - m), and
// O = sum 2^(s - m) v beside it, for scores s = q k log2(e) / sqrt(d). Two such states merge by
// bringing both to the larger m.
struct alignas(8) SoftmaxStats {
  float m, l;
};

// The queries of a call.
inline Queries queries_of(const TensorView& q, const KvView& kv) {
  return {q.data, q.stride[0], q.stride[1], static_cast<int>(q.shape[0]),
          static_cast<int>(q.shape[1]) / kv.kv_heads};
}
// The factor of scores, for weights in base 2.
inline float score_scale(int head_dim) { return kLog2e / std::sqrt(static_cast<float>(head_dim)); }

// Rotates the keys of a tile in place, each by its row's index.
template <class T, int kDim>
TF_DEVICE void rotate_tile(T* keys, std::int64_t first, const Angles& angles, std::int64_t rows) {
  constexpr int kHalf = kDim / 2;
  for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * kHalf; i += kAttentionThreads) {
    const int r = i / kHalf, j = i % kHalf;
    if (first + r >= rows) continue;
    T* const low = keys + kv_element(r, j, kDim);
    T* const high = keys + kv_element(r, j + kHalf, kDim);
    const float a = to_float(*low), b = to_float(*high);
    const std::int64_t at = (first + r) * angles.stride + j;
    *low = from_float<T>(fmaf(-b, angles.sin[at], a * angles.cos[at]));
    *high = from_float<T>(fmaf(a, angles.sin[at], b * angles.cos[at]));
  }
}

template <class T>
TF_DEVICE std::uint32_t pack_pair(float a, float b) {
  const T pair[2] = {from_float<T>(a), from_float<T>(b)};
  std::uint32_t bits;
  memcpy(&bits, pair, 4);
  return bits;
}

// Eight packed rows from `first` on as operand B of all products along a row; zeros for rows that
// are not there.
template <class T, int kDim>
TF_DEVICE void load_queries(const Queries& q, int kv_head, int first, int rows, int lane,
                            std::uint32_t (&query)[kDim / 16][2]) {
  const int row = first + lane / 4, pair = lane % 4;
  const bool there = row < rows;
  const T* const from = static_cast<const T*>(q.data) + (there ? query_offset(q, kv_head, row) : 0);
  TF_UNROLL
  for (int s = 0; s < kDim / 16; ++s) {
    TF_UNROLL
    for (int half = 0; half < 2; ++half) {
      std::uint32_t bits = 0;
      if (there) {
        bits = *reinterpret_cast<const std::uint32_t*>(from + s * 16 + half * 8 + pair * 2);
      }
      query[s][half] = bits;
    }
  }
}

// Products of the warp's 16 keys of a tile with 8 kGroups queries: keys as rows.
template <class T, int kDim, int kGroups>
TF_DEVICE void key_scores(const T* keys, int warp, int lane,
                          const std::uint32_t (&query)[kGroups][kDim / 16][2],
                          float (&score)[kGroups][4]) {
  TF_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    TF_UNROLL
    for (int i = 0; i < 4; ++i) score[g][i] = 0;
  }
  const int row = warp * 16 + lane % 16, side = lane / 16;
  TF_UNROLL
  for (int s = 0; s < kDim / 16; ++s) {
    std::uint32_t k[4];
    ptx::ldmatrix_x4(k, keys + kv_part(row, s * 2 + side, kDim));
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) ptx::mma<T>(score[g], k, query[g][s]);
  }
}

// The probability that each chunk of keys gets (attention_mass.cu).
// mass[Hkv, n] f32: the weights of chunk c summed over all packed rows; 0 beyond the length.
// totals[Hkv][rows]: of each row over the whole cache, as attention() leaves them; key_mass:
// workspace [Hkv][capacity].
void attention_mass(const Queries& q, const KvView& kv, const RopeView& rope,
                    const SoftmaxStats* totals, float* key_mass, const TensorView& mass, int chunk,
                    cudaStream_t stream);

}  // namespace triforce::kernels
