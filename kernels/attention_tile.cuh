// What the attention kernels share: tiles of keys and values in shared memory, queries as operands.
#pragma once
#include <cmath>
#include <span>

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
  int tokens, group;                       // of a lane; query heads of one KV head
  int first = 0;                           // token of the lane
};
// The queries of one lane.
TF_DEVICE Queries lane_of(const Queries& q, unsigned lane) {
  Queries mine = q;
  mine.first = static_cast<int>(lane) * q.tokens;
  return mine;
}

// (token, head of the group) of packed row r.
TF_DEVICE std::int64_t query_offset(const Queries& q, int kv_head, int row) {
  const int token = q.first + row / q.group, head = kv_head * q.group + row % q.group;
  return token * q.token_stride + head * q.head_stride;
}
// Keys that packed row r may see, of a cache that holds `length`.
TF_DEVICE std::int64_t visible_keys(const Queries& q, std::int64_t length, int row) {
  return length - q.tokens + row / q.group + 1;
}

// 16-byte parts of a tile of kKeys rows, of keys or of values.
template <int kDim, int kKeys = kTileKeys>
constexpr int kTileParts = kKeys* kDim / kPartElements;

// Of `there` rows, those from the thread's first one on.
template <int kDim>
TF_DEVICE int rows_left(int there) {
  return there - static_cast<int>(threadIdx.x) / (kDim / kPartElements);
}
// Copies kKeys rows of keys or of values as they lie; zeros for those past the last one that is
// there, of which nothing is read. left: rows_left() of these.
template <int kDim, int kKeys = kTileKeys>
TF_DEVICE void load_tile(const std::uint16_t* rows, int left, uint4* to) {
  constexpr int kParts = kDim / kPartElements, kRowsAtOnce = kAttentionThreads / kParts;
  const int thread = static_cast<int>(threadIdx.x);
  const std::uint16_t* const from = rows + thread * kPartElements;
  to += thread;
  TF_UNROLL
  for (int i = 0; i < kKeys / kRowsAtOnce; ++i) {
    ptx::cp_async16(to + i * kAttentionThreads, from + i * kAttentionThreads * kPartElements,
                    i * kRowsAtOnce < left);
  }
}

// A head's keys and values from row `begin` on, and how many rows there are: as many as 32 bits
// count.
struct HeadRows {
  const std::uint16_t *k, *v;
  int there;
};
template <int kDim>
TF_DEVICE HeadRows head_rows(const KvView& kv, int head, std::int64_t begin,
                             std::int64_t lane_begin = 0) {
  const std::int64_t at = lane_begin + head * kv.head_stride + begin * kDim,
                     there = kv.capacity - begin;
  return {static_cast<const std::uint16_t*>(kv.k) + at,
          static_cast<const std::uint16_t*>(kv.v) + at, static_cast<int>(there)};
}
template <int kDim>
TF_DEVICE HeadRows head_rows(const KvLanes& lanes, unsigned lane, int head, std::int64_t begin) {
  return head_rows<kDim>(lanes.kv, head, begin, lane * lanes.step);
}

// Online softmax of one row over keys seen so far, in base 2: l = sum 2^(s - m), and O = sum
// 2^(s - m) v beside it, for scores s = q k log2(e) / sqrt(d) and an m near the largest of them.
// Two such states merge by bringing both to the larger m.
struct alignas(8) SoftmaxStats {
  float m, l;
};

// The queries of a call.
inline Queries queries_of(const TensorView& q, const KvLanes& lanes) {
  return {q.data, q.stride[0], q.stride[1], static_cast<int>(q.shape[0]) / lanes.count,
          static_cast<int>(q.shape[1]) / lanes.kv.kv_heads};
}
// The factor of scores, for weights in base 2.
inline float score_scale(int head_dim) { return kLog2e / std::sqrt(static_cast<float>(head_dim)); }

// Rotates the keys of a tile in place, each by its row's index. A thread turns 16 bytes of a row
// and those half a row on at a time; the angles of the first such turns are fetched while the tile
// is still under way. kRun: the tile is of runs of so many rows, kTileKeys apart in the cache.
template <class T, int kDim, int kKeys = kTileKeys, int kRun = kKeys>
class Rotation {
 public:
  TF_DEVICE Rotation() : thread_(static_cast<int>(ptx::opaque(threadIdx.x) % kAttentionThreads)) {}
  // Of the tile from row `first` on, of a cache of `rows`.
  TF_DEVICE void fetch(std::int64_t first, const Angles& angles, std::int64_t rows) {
    fetch_turns(0, first, angles, rows);
  }
  // After fetch() of the same tile.
  TF_DEVICE void rotate(T* keys, std::int64_t first, const Angles& angles, std::int64_t rows) {
    TF_UNROLL
    for (int turn = 0; turn < kTurns; turn += kAhead) {
      if (turn > 0) fetch_turns(turn, first, angles, rows);
      TF_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const int row = row_of(turn + i);
        if (first + place_of(row) < rows) turn_parts(keys, row, i);
      }
    }
  }

 private:
  static constexpr int kHalfParts = kDim / 2 / kPartElements;
  static constexpr int kTurns = kKeys * kHalfParts / kAttentionThreads;
  static constexpr int kAhead = kDim > 64 ? 1 : 2;
  static_assert(kTurns % kAhead == 0);

  TF_DEVICE int part() const { return thread_ % kHalfParts; }
  TF_DEVICE int row_of(int turn) const { return (turn * kAttentionThreads + thread_) / kHalfParts; }
  // In the cache, from the tile's first row on.
  TF_DEVICE static int place_of(int row) {
    return kRun == kKeys ? row : row / kRun * kTileKeys + row % kRun;
  }
  // Rows that are not there have no angles: the last one's stand for them.
  TF_DEVICE void fetch_turns(int turn, std::int64_t first, const Angles& angles,
                             std::int64_t rows) {
    TF_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t row = first + place_of(row_of(turn + i));
      const std::int64_t at =
          (row < rows ? row : rows - 1) * angles.stride + part() * kPartElements;
      TF_UNROLL
      for (int q = 0; q < 2; ++q) {
        cos_[i][q] = *reinterpret_cast<const float4*>(angles.cos + at + q * 4);
        sin_[i][q] = *reinterpret_cast<const float4*>(angles.sin + at + q * 4);
      }
    }
  }
  TF_DEVICE void turn_parts(T* keys, int row, int turn) const {
    auto* const low_at = reinterpret_cast<uint4*>(keys + kv_part(row, part(), kDim));
    auto* const high_at = reinterpret_cast<uint4*>(keys + kv_part(row, part() + kHalfParts, kDim));
    const uint4 low_bits = *low_at, high_bits = *high_at;
    T low[kPartElements], high[kPartElements];
    memcpy(low, &low_bits, sizeof low);
    memcpy(high, &high_bits, sizeof high);
    TF_UNROLL
    for (int j = 0; j < kPartElements; ++j) {
      const float c = nth(cos_[turn][j / 4], j % 4), s = nth(sin_[turn][j / 4], j % 4);
      const float a = to_float(low[j]), b = to_float(high[j]);
      low[j] = from_float<T>(fmaf(-b, s, a * c));
      high[j] = from_float<T>(fmaf(a, s, b * c));
    }
    memcpy(low_at, low, sizeof low);
    memcpy(high_at, high, sizeof high);
  }
  TF_DEVICE static float nth(const float4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
  }

  int thread_;
  float4 cos_[kAhead][2], sin_[kAhead][2];
};

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

// Where a thread reads parts of a row of a tile: those of one parity, 2 s + side. Bits 1 and 2 of
// their numbers are all that moves in the row's pattern, so one offset and constants say all
// places.
class RowParts {
 public:
  TF_DEVICE RowParts(int row, int side, int dim)
      : first_(static_cast<int>(kv_part(row, side, dim))) {}
  // Elements from the tile's first one.
  TF_DEVICE int at(int s) const {
    return (first_ ^ (s % 4 * 2 * kPartElements)) + s / 4 * 8 * kPartElements;
  }

 private:
  int first_;
};

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
  const RowParts parts(warp * 16 + lane % 16, lane / 16, kDim);
  TF_UNROLL
  for (int s = 0; s < kDim / 16; ++s) {
    std::uint32_t k[4];
    ptx::ldmatrix_x4(k, keys + parts.at(s));
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) ptx::mma<T>(score[g], k, query[g][s]);
  }
}

// The probability that each chunk of keys gets (attention_mass.cu).
// mass[Hkv, n] f32 of lanes from `first` on: the weights of chunk c summed over all packed rows; 0
// beyond the length. totals[lane][Hkv][rows]: of each row over the whole cache, as attention()
// leaves them; key_mass: workspace [mass.size()][Hkv][capacity].
void attention_mass(const Queries& q, const KvLanes& lanes, const RopeView& rope,
                    const SoftmaxStats* totals, float* key_mass, int first,
                    std::span<const TensorView> mass, int chunk, cudaStream_t stream);

}  // namespace triforce::kernels
