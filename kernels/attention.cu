#include "kernels/kernels.h"

#include <algorithm>
#include <cfloat>

#include "kernels/arrival.cuh"
#include "kernels/attention_tile.cuh"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

constexpr int kWarps = kAttentionWarps, kThreads = kAttentionThreads;
constexpr int kStages = 2;
constexpr int kWarpKeys = kTileKeys / kWarps;
// Stands for the maximum of no keys: 2^(-inf - kLeast) = 0.
constexpr float kLeast = -FLT_MAX;

// What the splits of a cache leave for the one that finishes last.
struct Partials {
  float* o;             // [kv_head][split][row][d]
  SoftmaxStats* stats;  // [kv_head][split][row]
  std::int64_t splits;
  unsigned* arrivals;  // [kv_head][32 packed rows], zeros between launches
};
// Where the result goes: rows of T, `out_stride` elements apart; totals[Hkv][rows] or null.
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
  int first, heads;                    // its first packed row, and rows of a token

  TF_DEVICE void start(const Queries& q, int kv_head, int first_row, int rows, int lane) {
    first = first_row;
    heads = q.group;
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      load_queries<T, kDim>(q, kv_head, first_row + g * 8, rows, lane, query[g]);
      TF_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        TF_UNROLL
        for (int i = 0; i < 4; ++i) o[g][s][i] = 0;
      }
      TF_UNROLL
      for (int i = 0; i < 2; ++i) {
        m[g][i] = -INFINITY;
        l[g][i] = 0;
      }
    }
  }

  // keys, values: this tile; visible: how many of the warp's 16 keys the first token's rows see;
  // those of each next token see one more.
  TF_DEVICE void add_tile(const T* keys, const T* values, int visible, int warp, int lane,
                          float scale) {
    float score[kGroups][4];
    key_scores<T, kDim, kGroups>(keys, warp, lane, query, score);
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TF_UNROLL
      for (int i = 0; i < 4; ++i) score[g][i] *= scale;
    }
    if (visible < kWarpKeys) mask(score, visible, lane);  // at the cache's end alone
    std::uint32_t p[kGroups][2];
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) softmax(score[g], g, p[g]);
    const int row = warp * 16 + lane % 8 + lane / 16 * 8, side = lane / 8 % 2;
    TF_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      std::uint32_t v[4];
      ptx::ldmatrix_x4<true>(v, values + kv_part(row, s * 2 + side, kDim));
      TF_UNROLL
      for (int g = 0; g < kGroups; ++g) ptx::mma<T>(o[g][s], v, p[g]);
    }
  }

  // To shared memory: O [warp][row][d] and the rows' m and l, l summed over the lanes of a row.
  TF_DEVICE void store(float* out, SoftmaxStats* stats, int warp, int lane) const {
    const int group = lane / 4, pair = lane % 4;
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TF_UNROLL
      for (int i = 0; i < 2; ++i) {
        float sum = l[g][i];
        TF_UNROLL
        for (int mask = 4; mask < 32; mask *= 2) sum += __shfl_xor_sync(0xffffffffU, sum, mask);
        const int row = warp * (kGroups * 8) + g * 8 + pair * 2 + i;
        if (group == 0) stats[row] = {m[g][i], sum};
        TF_UNROLL
        for (int s = 0; s < kSteps; ++s) {
          out[row * kDim + s * 16 + group] = o[g][s][i];
          out[row * kDim + s * 16 + group + 8] = o[g][s][i + 2];
        }
      }
    }
  }

 private:
  // Scores are of keys lane / 4 and + 8 for rows 2 pair and + 1. Row r's token sees `visible` of
  // the warp's keys and r / heads more. Rows that are not there have queries of zeros, and their
  // results go nowhere.
  TF_DEVICE void mask(float (&x)[kGroups][4], int visible, int lane) const {
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

  // Scores to weights as operand B; what was summed before is brought to the new maximum. A masked
  // key weighs exactly 0, and a tile that is masked as a whole changes nothing: the factor is 1, or
  // what it multiplies 0.
  TF_DEVICE void softmax(float (&x)[4], int g, std::uint32_t (&p)[2]) {
    float factor[2];
    TF_UNROLL
    for (int i = 0; i < 2; ++i) {
      float m_new = fmaxf(x[i], x[i + 2]);
      TF_UNROLL
      for (int mask = 4; mask < 32; mask *= 2) {
        m_new = fmaxf(m_new, __shfl_xor_sync(0xffffffffU, m_new, mask));
      }
      m_new = fmaxf(m_new, m[g][i]);
      const float base = fmaxf(m_new, kLeast);
      factor[i] = ptx::exp2(m[g][i] - base);  // 0 before the first key
      m[g][i] = m_new;
      x[i] = ptx::exp2(x[i] - base);
      x[i + 2] = ptx::exp2(x[i + 2] - base);
      l[g][i] = fmaf(l[g][i], factor[i], x[i] + x[i + 2]);
    }
    TF_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      TF_UNROLL
      for (int i = 0; i < 4; ++i) o[g][s][i] *= factor[i % 2];
    }
    p[0] = ptx::movmatrix(pack_pair<T>(x[0], x[1]));
    p[1] = ptx::movmatrix(pack_pair<T>(x[2], x[3]));
  }
};

// Splits [0, splits) of one packed row, in order, by one warp; a lane has kDim / 32 dimensions.
template <class T, int kDim>
TF_DEVICE void combine_row(const Queries& q, const Partials& in, int head, int row, int rows,
                           int splits, int lane, const Combined& to) {
  constexpr int kEach = kDim / 32;
  constexpr int kAhead = 16;  // splits on their way at once: the latency of memory counts here
  using Lane = std::conditional_t<kEach == 4, float4, float2>;
  static_assert(sizeof(Lane) == kEach * sizeof(float));
  const std::int64_t first = std::int64_t{head} * in.splits * rows + row;
  const float2* const stats = reinterpret_cast<const float2*>(in.stats + first);
  const float* const o = in.o + first * kDim + lane * kEach;
  float m = -INFINITY;
  for (int s = lane; s < splits; s += 32) m = fmaxf(m, __ldcg(stats + std::int64_t{s} * rows).x);
  TF_UNROLL
  for (int mask = 1; mask < 32; mask *= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffU, m, mask));
  float sum[kEach] = {}, l = 0;
  for (int begin = 0; begin < splits; begin += kAhead) {
    const int mine = begin + lane % kAhead;
    float2 part{-INFINITY, 0};
    if (mine < splits) part = __ldcg(stats + std::int64_t{mine} * rows);
    Lane ahead[kAhead] = {};
    TF_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (begin + i >= splits) break;
      ahead[i] = __ldcg(reinterpret_cast<const Lane*>(o + std::int64_t{begin + i} * rows * kDim));
    }
    const float factor = ptx::exp2(part.x - m);
    TF_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const float f = __shfl_sync(0xffffffffU, factor, i);
      const float part_l = __shfl_sync(0xffffffffU, part.y, i);
      if (begin + i >= splits) continue;
      float values[kEach];
      memcpy(values, &ahead[i], sizeof(values));
      TF_UNROLL
      for (int j = 0; j < kEach; ++j) sum[j] = fmaf(values[j], f, sum[j]);
      l = fmaf(part_l, f, l);
    }
  }
  const int query_head = head * q.group + row % q.group;
  T* const out = static_cast<T*>(to.out) + row / q.group * to.out_stride +
                 std::int64_t{query_head} * kDim + lane * kEach;
  // A function that is called knows nothing of where its pointers point.
  TF_IN_DEVICE_MEMORY(out);
  TF_IN_DEVICE_MEMORY(to.totals);
  TF_UNROLL
  for (int j = 0; j < kEach; ++j) out[j] = from_float<T>(sum[j] / l);
  if (to.totals != nullptr && lane == 0) to.totals[std::int64_t{head} * rows + row] = {m, l};
}

// Those of the block's packed rows, each by a warp. A call, since inlined it takes registers from
// the loop over tiles.
template <class T, int kDim>
__device__ __noinline__ void combine_rows(Queries q, Partials in, int splits, Combined to) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y), rows = q.tokens * q.group;
  const int first = static_cast<int>(blockIdx.z) * kAttentionRows;
  for (int row = first + warp; row < min(rows, first + kAttentionRows); row += kWarps) {
    combine_row<T, kDim>(q, in, head, row, rows, splits, lane, to);
  }
}

// grid: (split, KV head, 32 packed rows). The last block of a head's rows combines their splits.
template <class T, int kDim, int kGroups, bool kRotate>
__global__ void __launch_bounds__(kThreads, 1)
    split_kernel(Queries q, KvView kv, Angles angles, std::int64_t split, float scale, Partials out,
                 Combined result) {
  constexpr int kStageParts = 2 * kTileParts<kDim>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y), rows = q.tokens * q.group;
  const int first_row = static_cast<int>(blockIdx.z) * kAttentionRows;
  ptx::wait_for_earlier_grids();
  ptx::let_next_grid_start();
  const std::int64_t length = *kv.length;
  const std::int64_t begin = blockIdx.x * split,
                     end = length < begin + split ? length : begin + split;
  if (begin >= length) return;
  TF_SHARED(uint4, shared);
  const int tiles = static_cast<int>((end - begin + kTileKeys - 1) / kTileKeys);
  WarpState<T, kDim, kGroups> state;
  const HeadRows at = head_rows<kDim>(kv, head, begin);
  // Of the split's keys, what the first token's rows see of those from the warp's first one on.
  const int seen = static_cast<int>(visible_keys(q, length, 0) - begin) - warp * kWarpKeys;
  const auto load = [&](int t) {
    uint4* const to = shared + t % kStages * kStageParts;
    const int first = t * kTileKeys;
    load_tile<kDim>(at.k + first * kDim, at.there - first, to);
    load_tile<kDim>(at.v + first * kDim, at.there - first, to + kTileParts<kDim>);
  };
  load(0);
  ptx::cp_async_commit();
  state.start(q, head, first_row, rows, lane);
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) load(t + 1);
    ptx::cp_async_commit();  // an empty group keeps the count
    [[maybe_unused]] const std::int64_t first = begin + std::int64_t{t} * kTileKeys;
    [[maybe_unused]] Rotation<T, kDim> rotation;
    if constexpr (kRotate) rotation.fetch(first, angles, length);
    ptx::cp_async_wait<1>();
    __syncthreads();
    T* const keys = reinterpret_cast<T*>(shared + t % kStages * kStageParts);
    if constexpr (kRotate) {
      rotation.rotate(keys, first, angles, length);
      __syncthreads();
    }
    const auto tile_lane = static_cast<int>(ptx::opaque(threadIdx.x) % 32);
    const int tile_warp =  // sm_120 has no register for it
        ptx::compiled_for<1200>() ? static_cast<int>(ptx::opaque(threadIdx.x) / 32) : warp;
    state.add_tile(keys, keys + kTileKeys * kDim, seen - t * kTileKeys, tile_warp, tile_lane,
                   scale);
    __syncthreads();  // the stage is loaded anew
  }
  constexpr int kRows = kGroups * 8;
  float* const o = reinterpret_cast<float*>(shared);
  auto* const stats = reinterpret_cast<SoftmaxStats*>(o + kWarps * kRows * kDim);
  state.store(o, stats, warp, lane);
  __syncthreads();
  const std::int64_t unit = (std::int64_t{head} * out.splits + blockIdx.x) * rows;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kDim; i += kThreads) {
    const int row = i / kDim, j = i % kDim;
    if (first_row + row >= rows) continue;
    float m = -INFINITY;
    TF_UNROLL
    for (int w = 0; w < kWarps; ++w) m = fmaxf(m, stats[w * kRows + row].m);
    const float base = m == -INFINITY ? 0.0F : m;
    float sum = 0, l = 0;
    TF_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      const float factor = ptx::exp2(stats[w * kRows + row].m - base);
      sum = fmaf(o[(w * kRows + row) * kDim + j], factor, sum);
      l = fmaf(stats[w * kRows + row].l, factor, l);
    }
    out.o[(unit + first_row + row) * kDim + j] = sum;
    if (j == 0) out.stats[unit + first_row + row] = {m, l};
  }
  const auto splits = static_cast<int>((*kv.length + split - 1) / split);
  unsigned* const arrivals = out.arrivals + head * gridDim.z + blockIdx.z;
  if (!arrives_last(arrivals, static_cast<unsigned>(splits), reinterpret_cast<unsigned*>(o)))
    return;
  combine_rows<T, kDim>(q, out, splits, result);
}

// Two blocks fit a multiprocessor; four waves keep the last one's idle share small.
std::int64_t max_splits(int multiprocessors, int kv_heads) {
  return std::max<std::int64_t>(1, std::int64_t{8} * multiprocessors / kv_heads);
}

// Where the parts of the workspace lie.
struct Workspace {
  std::int64_t splits, rows;  // rows: packed rows of a KV head
  std::int64_t o, stats, totals, key_mass, bytes;

  Workspace(std::int64_t queries, int heads, int kv_heads, int head_dim, std::int64_t capacity,
            std::int64_t max_splits, bool mass)
      : splits(max_splits), rows(queries * (heads / kv_heads)), o(0) {
    const std::int64_t units = kv_heads * splits * rows;
    stats = o + units * head_dim * 4;
    totals = stats + units * 8;
    key_mass = totals + (mass ? kv_heads * rows * 8 : 0);
    bytes = key_mass + (mass ? kv_heads * capacity * 4 : 0);
  }
};

template <class T, int kDim>
void run(const Queries& q, const KvView& kv, const RopeView& rope, std::int64_t split,
         const Partials& partials, const Combined& to, cudaStream_t stream) {
  const int rows = q.tokens * q.group;
  with_count<kAttentionRows / 8>(ceil_div(rows, 8), [&](auto groups) {
    constexpr std::size_t kTiles = std::size_t{kStages} * 2 * kTileKeys * kDim * 2;
    constexpr std::size_t kStates = std::size_t{kWarps} * groups * 8 * (kDim * 4 + 8);
    launch_early(kv.rotate_on_read ? split_kernel<T, kDim, groups, true>
                                   : split_kernel<T, kDim, groups, false>,
                 dims(partials.splits, kv.kv_heads, ceil_div(rows, kAttentionRows)), dims(kThreads),
                 std::max(kTiles, kStates), stream, q, kv, angles_of(rope), split,
                 score_scale(kDim), partials, to);
  });
}

}  // namespace

std::int64_t split_tokens(int multiprocessors, int layer_heads, std::int64_t capacity) {
  // A block's start and the addition of its split take as long as some tiles: fewer than these only
  // where they would leave multiprocessors without a block. Of 4,232 rows of 32 heads on an H200,
  // 1, 7 and 16 queries take 21.5, 24.4 and 30.4 us in splits of 6 tiles, 24.9, 31.1 and 47.3 in
  // those of 2.
  constexpr std::int64_t kEnough = 6, kFewest = 2;
  const std::int64_t tiles = ceil_div(capacity, kTileKeys);
  const std::int64_t of_four_waves = ceil_div(tiles, max_splits(multiprocessors, layer_heads)),
                     of_one_wave = ceil_div(tiles * layer_heads, 2 * multiprocessors);
  return std::max({of_four_waves, std::min(of_one_wave, kEnough), kFewest}) * kTileKeys;
}

std::int64_t attention_bytes(std::int64_t queries, int heads, int kv_heads, int head_dim,
                             std::int64_t capacity, std::int64_t split, bool mass) {
  return Workspace(queries, heads, kv_heads, head_dim, capacity, ceil_div(capacity, split), mass)
      .bytes;
}

std::int64_t max_attention_bytes(int multiprocessors, std::int64_t queries, int heads, int kv_heads,
                                 int head_dim, std::int64_t capacity, bool mass) {
  const std::int64_t splits = max_splits(multiprocessors, kv_heads);
  return Workspace(queries, heads, kv_heads, head_dim, capacity, splits, mass).bytes;
}

void attention(const TensorView& q, const KvView& kv, const RopeView& rope, const TensorView& out,
               const TensorView& mass, int chunk, std::int64_t split, void* workspace,
               unsigned* arrivals, cudaStream_t stream) {
  const Queries queries = queries_of(q, kv);
  TF_CHECK(split > 0 && split % kTileKeys == 0, "attention: splits of {} tokens", split);
  const bool with_mass = mass.data != nullptr;
  const Workspace w(q.shape[0], static_cast<int>(q.shape[1]), kv.kv_heads, kv.head_dim, kv.capacity,
                    ceil_div(kv.capacity, split), with_mass);
  auto* const memory = static_cast<std::byte*>(workspace);
  const Partials partials{reinterpret_cast<float*>(memory + w.o),
                          reinterpret_cast<SoftmaxStats*>(memory + w.stats), w.splits, arrivals};
  auto* const totals = with_mass ? reinterpret_cast<SoftmaxStats*>(memory + w.totals) : nullptr;
  with_rows_of(kv, [&](auto t, auto dim) {
    run<decltype(t), dim>(queries, kv, rope, split, partials, {out.data, out.stride[0], totals},
                          stream);
  });
  if (with_mass) {
    attention_mass(queries, kv, rope, totals, reinterpret_cast<float*>(memory + w.key_mass), mass,
                   chunk, stream);
  }
}

}  // namespace triforce::kernels
