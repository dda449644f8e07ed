// Exact attention's parts: one warp's state over its keys, and what becomes of the states of warps
// and splits. A row's sums are made of the same numbers in the same order whoever adds them.
#pragma once
#include <cfloat>

#include "kernels/attention_tile.cuh"

namespace triforce::kernels {

constexpr int kWarpKeys = kTileKeys / kAttentionWarps;
// A row's keys of a tile lie in so many lanes of a warp.
constexpr int kRowLanes = 8;
// Stands for the base of no keys: 2^(x - kLeast) would be more than kHeadroom, and 2^(-inf -
// kLeast) = 0.
constexpr float kLeast = -FLT_MAX;
// Weights are 2^(score - m). A row's m rises to its largest score so far only when a weight would
// be more than 2^kHeadroom: seldom, and so what was summed before seldom has to be scaled. Weights
// of f16 have room for 2^15, and sums of them in f32 for any number of keys.
constexpr float kHeadroom = 8;

// What the splits of a cache leave for whoever adds them: sums of their warps, or each warp's.
struct Partials {
  float* o;             // [lane][kv_head][split][warp][row][d]
  SoftmaxStats* stats;  // [lane][kv_head][split][warp][row]
  std::int64_t splits;
  unsigned* arrivals;  // [lane][kv_head], zeros between launches
  // [lane][kv_head][warp][row][kRowLanes], for draft trees: what the split in which common_keys()
  // end leaves of l, before lanes are added.
  float* sums;
};
// Sequence `lane` has so many new rows; the others of the call are padding.
TF_DEVICE int new_rows(const Queries& q, const KvLanes& lanes, unsigned lane) {
  return lanes.kv.appended == nullptr ? q.tokens : lanes.kv.appended[lane];
}
// What of a sequence of `length` rows wide_split_kernel takes: of one that ends in a draft tree
// whole tiles that every query sees in the order in which they lie. Not positive: nothing.
TF_DEVICE std::int64_t common_keys(const Queries& q, const KvLanes& lanes, unsigned lane,
                                   std::int64_t length) {
  if (lanes.kv.parents == nullptr) return length;
  const int added = new_rows(q, lanes, lane), of_tree = lanes.kv.tree_rows;
  return (length - (added > of_tree ? added : of_tree)) / kTileKeys * kTileKeys;
}
// Where the result goes: rows of T, `out_stride` elements apart; totals[lane][Hkv][rows] or null.
struct Combined {
  void* out;
  std::int64_t out_stride;
  SoftmaxStats* totals;
};

// One warp's state: 16 keys of every tile against 8 kGroups rows, as S^T = K Q^T and O^T += V^T
// P^T.
template <class T, int kDim, int kGroups>
struct WarpState {
  static constexpr int kSteps = kDim / 16;  // products of 16 along a row
  std::uint32_t query[kGroups][kSteps][2];
  float o[kGroups][kSteps][4];         // transposed: dimension, row
  float m[kGroups][2], l[kGroups][2];  // rows 2 pair and + 1 of a group
  int heads;                           // rows of a token

  TF_DEVICE void start(const Queries& q, int kv_head, int first_row, int rows, int lane) {
    heads = q.group;
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      load_queries<T, kDim>(q, kv_head, first_row + g * 8, rows, lane, query[g]);
    }
    clear();
  }
  // As before the first key.
  TF_DEVICE void clear() {
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TF_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        TF_UNROLL
        for (int i = 0; i < 4; ++i) o[g][s][i] = 0;
      }
      TF_UNROLL
      for (int i = 0; i < 2; ++i) {
        m[g][i] = kLeast;
        l[g][i] = 0;
      }
    }
  }

  // keys, values: this tile; first: packed row of the warp's first one; visible: how many of the
  // warp's 16 keys the first token's rows see; those of each next token see one more.
  TF_DEVICE void add_tile(const T* keys, const T* values, int first, int visible, int warp,
                          int lane, float scale) {
    float score[kGroups][4];
    key_scores<T, kDim, kGroups>(keys, warp, lane, query, score);
    if (visible < kWarpKeys) mask(score, first, visible, lane);  // at the cache's end alone
    std::uint32_t p[kGroups][2];
    if (__any_sync(0xffffffffU, most(score, scale) > kHeadroom ? 1 : 0)) raise(score, scale);
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) softmax(score[g], scale, g, p[g]);
    const RowParts parts(warp * 16 + lane % 8 + lane / 16 * 8, lane / 8 % 2, kDim);
    TF_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      std::uint32_t v[4];
      ptx::ldmatrix_x4<true>(v, values + parts.at(s));
      TF_UNROLL
      for (int g = 0; g < kGroups; ++g) ptx::mma<T>(o[g][s], v, p[g]);
    }
  }

  // O [row][d] and the rows' m and l, l summed over the lanes of a row, of the first `there` rows.
  TF_DEVICE void store(float* out, SoftmaxStats* stats, int there, int lane) const {
    const int group = lane / 4, pair = lane % 4;
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TF_UNROLL
      for (int i = 0; i < 2; ++i) {
        float sum = l[g][i];
        TF_UNROLL
        for (int mask = 4; mask < 32; mask *= 2) sum += __shfl_xor_sync(0xffffffffU, sum, mask);
        const int row = g * 8 + pair * 2 + i;
        if (row >= there) continue;
        if (group == 0) stats[row] = {m[g][i], sum};
        TF_UNROLL
        for (int s = 0; s < kSteps; ++s) {
          out[row * kDim + s * 16 + group] = o[g][s][i];
          out[row * kDim + s * 16 + group + 8] = o[g][s][i + 2];
        }
      }
    }
  }
  // l [row][kRowLanes] as it is in the lanes. Additions in another order would give other bits, so
  // store() does not say how to go on.
  TF_DEVICE void store_sums(float* sums, int there, int lane) const {
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TF_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int row = g * 8 + lane % 4 * 2 + i;
        if (row < there) sums[row * kRowLanes + lane / 4] = l[g][i];
      }
    }
  }
  // What store() and store_sums() have left; other rows stay as they are.
  TF_DEVICE void load(const float* from, const SoftmaxStats* stats, const float* sums, int there,
                      int lane) {
    const int group = lane / 4, pair = lane % 4;
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TF_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int row = g * 8 + pair * 2 + i;
        if (row >= there) continue;
        m[g][i] = stats[row].m;
        l[g][i] = sums[row * kRowLanes + group];
        TF_UNROLL
        for (int s = 0; s < kSteps; ++s) {
          o[g][s][i] = from[row * kDim + s * 16 + group];
          o[g][s][i + 2] = from[row * kDim + s * 16 + group + 8];
        }
      }
    }
  }

 private:
  // Scores are of keys lane / 4 and + 8 for rows 2 pair and + 1. Row r's token sees `visible` of
  // the warp's keys and r / heads more. Rows that are not there have queries of zeros, and their
  // results go nowhere.
  TF_DEVICE void mask(float (&x)[kGroups][4], int first, int visible, int lane) const {
    const int row = first + lane % 4 * 2, key = lane / 4 - visible;
    const int below[2] = {(key + 1) * heads - row, (key + 9) * heads - row};
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TF_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (below[i / 2] > g * 8 + i % 2) x[g][i] = -INFINITY;
      }
    }
  }

  // Of a score, the logarithm of its weight.
  TF_DEVICE float above(float x, float scale, int g, int i) const {
    return fmaf(x, scale, -m[g][i % 2]);
  }
  // The largest of the thread's.
  TF_DEVICE float most(const float (&x)[kGroups][4], float scale) const {
    float largest = -INFINITY;
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TF_UNROLL
      for (int i = 0; i < 4; ++i) largest = fmaxf(largest, above(x[g][i], scale, g, i));
    }
    return largest;
  }
  // Scores to weights as operand B. A masked key weighs exactly 0, and a tile that is masked as a
  // whole changes nothing.
  TF_DEVICE void softmax(const float (&x)[4], float scale, int g, std::uint32_t (&p)[2]) {
    float weight[4];
    TF_UNROLL
    for (int i = 0; i < 4; ++i) weight[i] = ptx::exp2(above(x[i], scale, g, i));
    TF_UNROLL
    for (int i = 0; i < 2; ++i) l[g][i] += weight[i] + weight[i + 2];
    p[0] = ptx::movmatrix(pack_pair<T>(weight[0], weight[1]));
    p[1] = ptx::movmatrix(pack_pair<T>(weight[2], weight[3]));
  }

  // Brings rows with a weight of more than 2^kHeadroom to their new maximum. Others stay as they
  // are, so that no row depends on its neighbours.
  TF_DEVICE void raise(const float (&x)[kGroups][4], float scale) {
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      float factor[2];
      TF_UNROLL
      for (int i = 0; i < 2; ++i) {
        float top = fmaxf(x[g][i], x[g][i + 2]);
        TF_UNROLL
        for (int mask = 4; mask < 32; mask *= 2) {
          top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, mask));
        }
        const float before = m[g][i];
        if (above(top, scale, g, i) > kHeadroom) m[g][i] = top * scale;
        factor[i] = ptx::exp2(before - m[g][i]);  // 0 before the first key
        l[g][i] *= factor[i];
      }
      TF_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        TF_UNROLL
        for (int i = 0; i < 4; ++i) o[g][s][i] *= factor[i % 2];
      }
    }
  }
};

// The factors that bring warps' sums of a row to their larger maximum, and what they sum up to.
template <int kWarps>
struct MergedWarps {
  float m = -INFINITY, l = 0, factor[kWarps];

  // of(w): the warp's statistics.
  template <class Of>
  TF_DEVICE explicit MergedWarps(const Of& of) {
    TF_UNROLL
    for (int w = 0; w < kWarps; ++w) m = fmaxf(m, of(w).m);
    const float base = m == -INFINITY ? 0.0F : m;
    TF_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      factor[w] = ptx::exp2(of(w).m - base);
      l = fmaf(of(w).l, factor[w], l);
    }
  }
};

// Splits [0, splits) of one packed row, in order, by one warp; a thread has kDim / 32 dimensions.
// kSlices: of a split, the warps whose sums are apart. grid: (., KV head, sequence)
template <class T, int kDim, int kSlices>
TF_DEVICE void combine_row(const Queries& q, const Partials& in, int row, int rows, int splits,
                           int lane, const Combined& to) {
  constexpr int kEach = kDim / 32;
  constexpr int kAhead = 16 / kSlices;  // on their way at once: the latency of memory counts here
  using Lane = std::conditional_t<kEach == 4, float4, float2>;
  static_assert(sizeof(Lane) == kEach * sizeof(float));
  const std::int64_t head = std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y;
  const std::int64_t first = head * in.splits * kSlices * rows + row;
  const float2* const stats = reinterpret_cast<const float2*>(in.stats + first);
  const float* const o = in.o + first * kDim + lane * kEach;
  float m = -INFINITY;
  for (int s = lane; s < splits * kSlices; s += 32) {
    m = fmaxf(m, __ldcg(stats + std::int64_t{s} * rows).x);
  }
  TF_UNROLL
  for (int mask = 1; mask < 32; mask *= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffU, m, mask));
  float sum[kEach] = {}, l = 0;
  for (int begin = 0; begin < splits; begin += kAhead) {
    const int mine = begin + lane % kAhead;
    float2 part[kSlices];
    TF_UNROLL
    for (int w = 0; w < kSlices; ++w) {
      part[w] = {-INFINITY, 0};
      if (mine < splits) part[w] = __ldcg(stats + std::int64_t{mine * kSlices + w} * rows);
    }
    Lane ahead[kAhead][kSlices] = {};
    TF_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (begin + i >= splits) break;
      TF_UNROLL
      for (int w = 0; w < kSlices; ++w) {
        ahead[i][w] = __ldcg(reinterpret_cast<const Lane*>(
            o + std::int64_t{(begin + i) * kSlices + w} * rows * kDim));
      }
    }
    [[maybe_unused]] const MergedWarps<kSlices> merged([&](int w) {
      return SoftmaxStats{part[w].x, part[w].y};
    });
    const float factor = ptx::exp2((kSlices > 1 ? merged.m : part[0].x) - m);
    TF_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const float f = __shfl_sync(0xffffffffU, factor, i);
      const float part_l = __shfl_sync(0xffffffffU, kSlices > 1 ? merged.l : part[0].y, i);
      float values[kEach];
      if constexpr (kSlices == 1) {
        if (begin + i >= splits) continue;
        memcpy(values, &ahead[i][0], sizeof(values));
      } else {
        TF_UNROLL
        for (int j = 0; j < kEach; ++j) values[j] = 0;
        TF_UNROLL
        for (int w = 0; w < kSlices; ++w) {
          const float of_warp = __shfl_sync(0xffffffffU, merged.factor[w], i);
          float parts[kEach];
          memcpy(parts, &ahead[i][w], sizeof(parts));
          TF_UNROLL
          for (int j = 0; j < kEach; ++j) values[j] = fmaf(parts[j], of_warp, values[j]);
        }
        if (begin + i >= splits) continue;
      }
      TF_UNROLL
      for (int j = 0; j < kEach; ++j) sum[j] = fmaf(values[j], f, sum[j]);
      l = fmaf(part_l, f, l);
    }
  }
  const int query_head = static_cast<int>(blockIdx.y) * q.group + row % q.group;
  const int token = static_cast<int>(blockIdx.z) * q.tokens + row / q.group;
  T* const out = static_cast<T*>(to.out) + token * to.out_stride + std::int64_t{query_head} * kDim +
                 lane * kEach;
  // A function that is called knows nothing of where its pointers point.
  TF_IN_DEVICE_MEMORY(out);
  TF_IN_DEVICE_MEMORY(to.totals);
  TF_UNROLL
  for (int j = 0; j < kEach; ++j) out[j] = from_float<T>(sum[j] / l);
  if (to.totals != nullptr && lane == 0) to.totals[head * rows + row] = {m, l};
}

// attention() of more than kAttentionRows packed rows, and over draft trees (attention_wide.cu):
// the sums of each warp's keys to `partials`, then their sum.
void attention_wide(const Queries& q, const KvLanes& lanes, const RopeView& rope,
                    std::int64_t split, const Partials& partials, const Combined& to,
                    cudaStream_t stream);
// The latter over draft trees, with the keys that are still missing (attention_tree.cu).
void combine_trees(const Queries& q, const KvLanes& lanes, const RopeView& rope, std::int64_t split,
                   const Partials& partials, const Combined& to, cudaStream_t stream);

}  // namespace triforce::kernels
