#include "kernels/attention.h"

#include <algorithm>

#include "kernels/element.cuh"
#include "kernels/kv_layout.cuh"
#include "kernels/launch.cuh"
#include "kernels/ptx.cuh"

namespace triforce::kernels {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;
constexpr int kTileKeys = 64, kStages = 2;
constexpr float kLog2e = 1.4426950408889634F;

struct Queries {
  const void* data;
  std::int64_t token_stride, head_stride;  // elements
  int tokens, group;                       // group: query heads of one KV head
};
struct Partials {
  float* sums;   // [kv_head][split][row][d], relative to the split's own maximum
  float2* tops;  // [kv_head][split][row]: maximum of the scaled scores in base 2, sum of weights
  std::int64_t splits;
};

// (token, head of the group) of packed row r.
TF_DEVICE std::int64_t query_offset(const Queries& q, int kv_head, int row) {
  const int token = row / q.group, head = kv_head * q.group + row % q.group;
  return token * q.token_stride + head * q.head_stride;
}

// Copies tile rows [first, first + 64) of K and V as they lie; rows past the capacity become zeros.
template <int kDim>
TF_DEVICE void load_tile(const KvView& kv, int head, std::int64_t first, uint4* to) {
  constexpr int kParts = kDim / kPartElements, kTileParts = kTileKeys * kParts;
  const std::int64_t base = head * kv.head_stride + first * kDim;
  const auto* const k = static_cast<const std::uint16_t*>(kv.k) + base;
  const auto* const v = static_cast<const std::uint16_t*>(kv.v) + base;
  TF_UNROLL
  for (int i = 0; i < kTileParts / kThreads; ++i) {
    const int part = i * kThreads + static_cast<int>(threadIdx.x);
    const bool there = first + part / kParts < kv.capacity;
    const std::int64_t at = there ? std::int64_t{part} * kPartElements : 0;
    ptx::cp_async16(to + part, k + at, there);
    ptx::cp_async16(to + kTileParts + part, v + at, there);
  }
}

// Rotates the keys of a tile in place, each by its row's index.
template <class T, int kDim>
TF_DEVICE void rotate_tile(T* keys, std::int64_t first, const float* cos, const float* sin,
                           std::int64_t stride, std::int64_t rows) {
  constexpr int kHalf = kDim / 2;
  for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * kHalf; i += kThreads) {
    const int r = i / kHalf, j = i % kHalf;
    if (first + r >= rows) continue;
    T* const low = keys + kv_element(r, j, kDim);
    T* const high = keys + kv_element(r, j + kHalf, kDim);
    const float a = to_float(*low), b = to_float(*high);
    const float c = cos[(first + r) * stride + j], s = sin[(first + r) * stride + j];
    *low = from_float<T>(fmaf(-b, s, a * c));
    *high = from_float<T>(fmaf(a, s, b * c));
  }
}

template <class T>
TF_DEVICE std::uint32_t pack_pair(float a, float b) {
  const T pair[2] = {from_float<T>(a), from_float<T>(b)};
  std::uint32_t bits;
  memcpy(&bits, pair, 4);
  return bits;
}

// One warp's state: 16 keys of every tile against 8 kGroups rows.
template <class T, int kDim, int kGroups>
struct WarpState {
  static constexpr int kSteps = kDim / 16;  // products of 16 along a row
  std::uint32_t query[kGroups][kSteps][2];
  float sum[kGroups][kSteps][4];  // O transposed: dimension, row
  float top[kGroups][2], weight[kGroups][2];
  std::int64_t visible[kGroups][2];  // keys below this index; rows 2 pair and + 1 of a group

  TF_DEVICE void start(const Queries& q, int kv_head, int first_row, int rows, std::int64_t length,
                       int lane) {
    const int group = lane / 4, pair = lane % 4;
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      const int row = first_row + g * 8 + group;
      const bool there = row < rows;
      const T* const from =
          static_cast<const T*>(q.data) + (there ? query_offset(q, kv_head, row) : 0);
      TF_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        TF_UNROLL
        for (int half = 0; half < 2; ++half) {
          std::uint32_t bits = 0;
          if (there)
            bits = *reinterpret_cast<const std::uint32_t*>(from + s * 16 + half * 8 + pair * 2);
          query[g][s][half] = bits;
        }
        TF_UNROLL
        for (int i = 0; i < 4; ++i) sum[g][s][i] = 0;
      }
      TF_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int column = first_row + g * 8 + pair * 2 + i;
        visible[g][i] = column < rows ? length - q.tokens + column / q.group + 1 : 0;
        top[g][i] = -INFINITY;
        weight[g][i] = 0;
      }
    }
  }

  // keys, values: this tile; `first`: index of the warp's first key.
  TF_DEVICE void add_tile(const T* keys, const T* values, std::int64_t first, int warp, int lane,
                          float scale) {
    float score[kGroups][4];
    scores(keys, warp, lane, score);
    std::uint32_t p[kGroups][2];
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) softmax(score[g], first + lane / 4, scale, g, p[g]);
    const int row = warp * 16 + lane % 8 + lane / 16 * 8, side = lane / 8 % 2;
    TF_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      std::uint32_t v[4];
      ptx::ldmatrix_x4<true>(v, values + kv_part(row, s * 2 + side, kDim));
      TF_UNROLL
      for (int g = 0; g < kGroups; ++g) ptx::mma<T>(sum[g][s], v, p[g]);
    }
  }

 private:
  TF_DEVICE void scores(const T* keys, int warp, int lane, float (&score)[kGroups][4]) const {
    TF_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      TF_UNROLL
      for (int i = 0; i < 4; ++i) score[g][i] = 0;
    }
    const int row = warp * 16 + lane % 8 + lane / 8 % 2 * 8, side = lane / 16;
    TF_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      std::uint32_t k[4];
      ptx::ldmatrix_x4(k, keys + kv_part(row, s * 2 + side, kDim));
      TF_UNROLL
      for (int g = 0; g < kGroups; ++g) ptx::mma<T>(score[g], k, query[g][s]);
    }
  }

  // Scores of keys `key` and key + 8 for rows 2 pair and + 1, to weights as operand B; what was
  // summed before is brought to the new maximum. A masked key weighs exactly 0, and a tile that is
  // masked as a whole changes nothing: the factor is 1.
  TF_DEVICE void softmax(const float (&score)[4], std::int64_t key, float scale, int g,
                         std::uint32_t (&p)[2]) {
    float x[4], factor[2];
    TF_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[i] = key + i / 2 * 8 < visible[g][i % 2] ? score[i] * scale : -INFINITY;
    }
    TF_UNROLL
    for (int i = 0; i < 2; ++i) {
      float most = fmaxf(x[i], x[i + 2]);
      TF_UNROLL
      for (int mask = 4; mask < 32; mask *= 2) {
        most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, mask));
      }
      most = fmaxf(most, top[g][i]);
      const float base = most == -INFINITY ? 0.0F : most;
      factor[i] = exp2f(top[g][i] - base);  // 0 before the first key
      if (top[g][i] == -INFINITY && most == -INFINITY) factor[i] = 1.0F;
      top[g][i] = most;
      x[i] = exp2f(x[i] - base);
      x[i + 2] = exp2f(x[i + 2] - base);
      weight[g][i] = weight[g][i] * factor[i] + (x[i] + x[i + 2]);
    }
    TF_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      TF_UNROLL
      for (int i = 0; i < 4; ++i) sum[g][s][i] *= factor[i % 2];
    }
    p[0] = ptx::movmatrix(pack_pair<T>(x[0], x[1]));
    p[1] = ptx::movmatrix(pack_pair<T>(x[2], x[3]));
  }
};

// grid: (split, KV head, 32 packed rows)
template <class T, int kDim, int kGroups>
__global__ void __launch_bounds__(kThreads)
    split_kernel(Queries q, KvView kv, const float* cos, const float* sin, std::int64_t rope_stride,
                 std::int64_t split, float scale, Partials out) {
  constexpr int kTileElements = kTileKeys * kDim;
  constexpr int kStageParts = 2 * kTileElements / kPartElements;
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
  load_tile<kDim>(kv, head, begin, shared);
  ptx::cp_async_commit();
  state.start(q, head, first_row, rows, length, lane);
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) {
      load_tile<kDim>(kv, head, begin + std::int64_t{t + 1} * kTileKeys,
                      shared + (t + 1) % kStages * kStageParts);
    }
    ptx::cp_async_commit();  // an empty group keeps the count
    ptx::cp_async_wait<1>();
    __syncthreads();
    T* const keys = reinterpret_cast<T*>(shared + t % kStages * kStageParts);
    const std::int64_t first = begin + std::int64_t{t} * kTileKeys;
    if (kv.rotate_on_read) {
      rotate_tile<T, kDim>(keys, first, cos, sin, rope_stride, length);
      __syncthreads();
    }
    state.add_tile(keys, keys + kTileElements, first + warp * 16, warp, lane, scale);
    __syncthreads();  // the stage is loaded anew
  }
  // Warps' sums to shared memory: [warp][row][d], then their maxima and weights.
  constexpr int kRows = kGroups * 8;
  float* const sums = reinterpret_cast<float*>(shared);
  float2* const tops = reinterpret_cast<float2*>(sums + kWarps * kRows * kDim);
  const int group = lane / 4, pair = lane % 4;
  TF_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    TF_UNROLL
    for (int i = 0; i < 2; ++i) {
      float w = state.weight[g][i];
      TF_UNROLL
      for (int mask = 4; mask < 32; mask *= 2) w += __shfl_xor_sync(0xffffffffU, w, mask);
      const int row = warp * kRows + g * 8 + pair * 2 + i;
      if (group == 0) tops[row] = float2{state.top[g][i], w};
      TF_UNROLL
      for (int s = 0; s < WarpState<T, kDim, kGroups>::kSteps; ++s) {
        sums[row * kDim + s * 16 + group] = state.sum[g][s][i];
        sums[row * kDim + s * 16 + group + 8] = state.sum[g][s][i + 2];
      }
    }
  }
  __syncthreads();
  const std::int64_t unit = (std::int64_t{head} * out.splits + blockIdx.x) * rows;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kDim; i += kThreads) {
    const int row = i / kDim, j = i % kDim;
    if (first_row + row >= rows) continue;
    float most = -INFINITY;
    TF_UNROLL
    for (int w = 0; w < kWarps; ++w) most = fmaxf(most, tops[w * kRows + row].x);
    const float base = most == -INFINITY ? 0.0F : most;
    float total = 0, weight = 0;
    TF_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      const float factor = exp2f(tops[w * kRows + row].x - base);
      total = fmaf(sums[(w * kRows + row) * kDim + j], factor, total);
      weight = fmaf(tops[w * kRows + row].y, factor, weight);
    }
    out.sums[(unit + first_row + row) * kDim + j] = total;
    if (j == 0) out.tops[unit + first_row + row] = float2{most, weight};
  }
}

// One block a packed row and KV head, one thread a dimension: splits in order.
template <class T>
__global__ void combine_kernel(Queries q, const std::int32_t* length, std::int64_t split,
                               Partials in, T* out, std::int64_t out_stride) {
  const int d = static_cast<int>(blockDim.x), j = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int rows = q.tokens * q.group;
  const std::int64_t splits = (*length + split - 1) / split;
  const float2* const tops = in.tops + std::int64_t{head} * in.splits * rows + row;
  const float* const sums = in.sums + (std::int64_t{head} * in.splits * rows + row) * d + j;
  float most = -INFINITY;
  for (std::int64_t s = 0; s < splits; ++s) most = fmaxf(most, tops[s * rows].x);
  float total = 0, weight = 0;
  for (std::int64_t s = 0; s < splits; ++s) {
    const float factor = exp2f(tops[s * rows].x - most);
    total = fmaf(sums[s * rows * d], factor, total);
    weight = fmaf(tops[s * rows].y, factor, weight);
  }
  const int query_head = head * q.group + row % q.group;
  out[row / q.group * out_stride + std::int64_t{query_head} * d + j] =
      from_float<T>(total / weight);
}

std::int64_t splits_of(std::int64_t capacity, std::int64_t split) {
  return (capacity + split - 1) / split;
}

template <class T, int kDim, int kGroups>
void run_split(const Queries& q, const KvView& kv, const RopeView& rope, std::int64_t split,
               const Partials& partials, dim3 grid, cudaStream_t stream) {
  constexpr std::size_t kTiles = std::size_t{kStages} * 2 * kTileKeys * kDim * 2;
  constexpr std::size_t kSums = std::size_t{kWarps} * kGroups * 8 * (kDim * 4 + 8);
  const float scale = kLog2e / sqrtf(static_cast<float>(kDim));
  launch(split_kernel<T, kDim, kGroups>, grid, dim3(kThreads), std::max(kTiles, kSums), stream, q,
         kv, static_cast<const float*>(rope.cos.data), static_cast<const float*>(rope.sin.data),
         rope.cos.rank > 0 ? rope.cos.stride[0] : std::int64_t{0}, split, scale, partials);
}

template <class T, int kDim>
void run(const Queries& q, const KvView& kv, const RopeView& rope, const TensorView& out,
         std::int64_t split, void* workspace, cudaStream_t stream) {
  const int rows = q.tokens * q.group;
  Partials partials;
  partials.splits = splits_of(kv.capacity, split);
  const std::int64_t units = kv.kv_heads * partials.splits * rows;
  partials.sums = static_cast<float*>(workspace);
  partials.tops = reinterpret_cast<float2*>(partials.sums + units * kDim);
  const dim3 grid(static_cast<unsigned>(partials.splits), static_cast<unsigned>(kv.kv_heads),
                  static_cast<unsigned>((rows + kAttentionRows - 1) / kAttentionRows));
  switch ((std::min(rows, kAttentionRows) + 7) / 8) {
    case 1:
      run_split<T, kDim, 1>(q, kv, rope, split, partials, grid, stream);
      break;
    case 2:
      run_split<T, kDim, 2>(q, kv, rope, split, partials, grid, stream);
      break;
    case 3:
      run_split<T, kDim, 3>(q, kv, rope, split, partials, grid, stream);
      break;
    default:
      run_split<T, kDim, 4>(q, kv, rope, split, partials, grid, stream);
  }
  launch(combine_kernel<T>, dim3(static_cast<unsigned>(rows), static_cast<unsigned>(kv.kv_heads)),
         dim3(kDim), 0, stream, q, kv.length, split, partials, static_cast<T*>(out.data),
         out.stride[0]);
}

}  // namespace

std::int64_t split_tokens(int multiprocessors, int kv_heads, std::int64_t capacity) {
  // Two blocks fit a multiprocessor; four waves keep the last one's idle share small.
  const std::int64_t splits =
      std::max<std::int64_t>(1, std::int64_t{8} * multiprocessors / kv_heads);
  const std::int64_t tokens = (capacity + splits - 1) / splits;
  return std::max<std::int64_t>(2, (tokens + kTileKeys - 1) / kTileKeys) * kTileKeys;
}

std::int64_t attention_bytes(std::int64_t queries, int heads, int kv_heads, int head_dim,
                             std::int64_t capacity, std::int64_t split) {
  const std::int64_t rows = queries * (heads / kv_heads);
  return kv_heads * splits_of(capacity, split) * rows * (head_dim * 4 + 8);
}

void attention(const TensorView& q, const KvView& kv, const RopeView& rope, const TensorView& out,
               std::int64_t split, void* workspace, cudaStream_t stream) {
  check_kv(kv);
  TF_CHECK(q.rank == 3 && q.shape[0] >= 1 && q.shape[0] <= kMaxExactRows && q.dtype == kv.dtype &&
               out.dtype == kv.dtype && q.shape[1] % kv.kv_heads == 0 &&
               q.shape[2] == kv.head_dim && out.shape[0] == q.shape[0] &&
               out.shape[1] == q.shape[1] * q.shape[2] && split > 0 && split % kTileKeys == 0,
           "attention: q [{}, {}, {}], {} KV heads of {}, out [{}, {}], split {}", q.shape[0],
           q.shape[1], q.shape[2], kv.kv_heads, kv.head_dim, out.shape[0], out.shape[1], split);
  TF_CHECK(!kv.rotate_on_read || rope.cos.shape[0] >= kv.capacity, "angles for {} of {} rows",
           rope.cos.shape[0], kv.capacity);
  const Queries queries{q.data, q.stride[0], q.stride[1], static_cast<int>(q.shape[0]),
                        static_cast<int>(q.shape[1]) / kv.kv_heads};
  with_half(kv.dtype, [&](auto t) {
    using T = decltype(t);
    if (kv.head_dim == 64) {
      run<T, 64>(queries, kv, rope, out, split, workspace, stream);
    } else {
      run<T, 128>(queries, kv, rope, out, split, workspace, stream);
    }
  });
}

}  // namespace triforce::kernels
