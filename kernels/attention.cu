#include "kernels/kernels.h"

#include <algorithm>
#include <cfloat>

#include "kernels/attention_tile.cuh"
#include "kernels/launch.cuh"
#include "kernels/reduce.cuh"

namespace triforce::kernels {
namespace {

constexpr int kWarps = kAttentionWarps, kThreads = kAttentionThreads;
constexpr int kStages = 2;
constexpr int kWarpKeys = kTileKeys / kWarps;
// Stands for the maximum of no keys: 2^(-inf - kLeast) = 0.
constexpr float kLeast = -FLT_MAX;

struct Partials {
  float* o;             // [kv_head][split][row][d]
  SoftmaxStats* stats;  // [kv_head][split][row]
  std::int64_t splits;
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
      factor[i] = exp2f(m[g][i] - base);  // 0 before the first key
      m[g][i] = m_new;
      x[i] = exp2f(x[i] - base);
      x[i + 2] = exp2f(x[i + 2] - base);
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

// grid: (split, KV head, 32 packed rows)
template <class T, int kDim, int kGroups, bool kRotate>
__global__ void __launch_bounds__(kThreads, 1)
    split_kernel(Queries q, KvView kv, Angles angles, std::int64_t split, float scale,
                 Partials out) {
  constexpr int kStageParts = 2 * kTileParts<kDim>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y), rows = q.tokens * q.group;
  const int first_row = static_cast<int>(blockIdx.z) * kAttentionRows;
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
    state.add_tile(keys, keys + kTileKeys * kDim, seen - t * kTileKeys, warp, tile_lane, scale);
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
      const float factor = exp2f(stats[w * kRows + row].m - base);
      sum = fmaf(o[(w * kRows + row) * kDim + j], factor, sum);
      l = fmaf(stats[w * kRows + row].l, factor, l);
    }
    out.o[(unit + first_row + row) * kDim + j] = sum;
    if (j == 0) out.stats[unit + first_row + row] = {m, l};
  }
}

// One block a packed row and KV head, one thread a dimension: splits in order.
template <class T>
__global__ void combine_kernel(Queries q, const std::int32_t* length, std::int64_t split,
                               Partials in, T* out, std::int64_t out_stride, SoftmaxStats* totals) {
  const int d = static_cast<int>(blockDim.x), j = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int rows = q.tokens * q.group;
  const std::int64_t splits = (*length + split - 1) / split;
  const SoftmaxStats* const stats = in.stats + std::int64_t{head} * in.splits * rows + row;
  const float* const o = in.o + (std::int64_t{head} * in.splits * rows + row) * d + j;
  // What all threads need of the splits is fetched at once: the latency of memory counts here.
  TF_SHARED(SoftmaxStats, parts);  // [split]: m, then its factor, and l; then one value a warp
  float m = -INFINITY;
  for (std::int64_t s = j; s < splits; s += d) {
    parts[s] = stats[s * rows];
    m = fmaxf(m, parts[s].m);
  }
  m = block_reduce(m, reinterpret_cast<float*>(parts + in.splits), Max{});
  for (std::int64_t s = j; s < splits; s += d) parts[s].m = exp2f(parts[s].m - m);
  __syncthreads();
  float sum = 0, l = 0;
  TF_UNROLL_N(8)
  for (std::int64_t s = 0; s < splits; ++s) {
    sum = fmaf(o[s * rows * d], parts[s].m, sum);
    l = fmaf(parts[s].l, parts[s].m, l);
  }
  const int query_head = head * q.group + row % q.group;
  out[row / q.group * out_stride + std::int64_t{query_head} * d + j] = from_float<T>(sum / l);
  if (totals != nullptr && j == 0) totals[std::int64_t{head} * rows + row] = {m, l};
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
void run(const Queries& q, const KvView& kv, const RopeView& rope, const TensorView& out,
         std::int64_t split, const Partials& partials, SoftmaxStats* totals, cudaStream_t stream) {
  const int rows = q.tokens * q.group;
  with_count<kAttentionRows / 8>(ceil_div(rows, 8), [&](auto groups) {
    constexpr std::size_t kTiles = std::size_t{kStages} * 2 * kTileKeys * kDim * 2;
    constexpr std::size_t kStates = std::size_t{kWarps} * groups * 8 * (kDim * 4 + 8);
    launch(kv.rotate_on_read ? split_kernel<T, kDim, groups, true>
                             : split_kernel<T, kDim, groups, false>,
           dims(partials.splits, kv.kv_heads, ceil_div(rows, kAttentionRows)), dims(kThreads),
           std::max(kTiles, kStates), stream, q, kv, angles_of(rope), split, score_scale(kDim),
           partials);
  });
  launch(combine_kernel<T>, dims(rows, kv.kv_heads), dims(kDim),
         static_cast<std::size_t>(partials.splits) * 8 + kDim / 32 * 4, stream, q, kv.length, split,
         partials, static_cast<T*>(out.data), out.stride[0], totals);
}

}  // namespace

std::int64_t split_tokens(int multiprocessors, int layer_heads, std::int64_t capacity) {
  const std::int64_t splits = max_splits(multiprocessors, layer_heads);
  const std::int64_t tokens = ceil_div(capacity, splits);
  return std::max<std::int64_t>(2, ceil_div(tokens, kTileKeys)) * kTileKeys;
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
               cudaStream_t stream) {
  const Queries queries = queries_of(q, kv);
  TF_CHECK(split > 0 && split % kTileKeys == 0, "attention: splits of {} tokens", split);
  const bool with_mass = mass.data != nullptr;
  const Workspace w(q.shape[0], static_cast<int>(q.shape[1]), kv.kv_heads, kv.head_dim, kv.capacity,
                    ceil_div(kv.capacity, split), with_mass);
  auto* const memory = static_cast<std::byte*>(workspace);
  const Partials partials{reinterpret_cast<float*>(memory + w.o),
                          reinterpret_cast<SoftmaxStats*>(memory + w.stats), w.splits};
  auto* const totals = with_mass ? reinterpret_cast<SoftmaxStats*>(memory + w.totals) : nullptr;
  with_rows_of(kv, [&](auto t, auto dim) {
    run<decltype(t), dim>(queries, kv, rope, out, split, partials, totals, stream);
  });
  if (with_mass) {
    attention_mass(queries, kv, rope, totals, reinterpret_cast<float*>(memory + w.key_mass), mass,
                   chunk, stream);
  }
}

}  // namespace triforce::kernels
