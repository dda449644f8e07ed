#include "kernels/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/element.cuh"
#include "kernels/kv_layout.cuh"
#include "kernels/launch.cuh"
#include "kernels/reduce.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr std::int64_t kSegment = 2048;  // keys that a block sorts in shared memory

// One dimension of a chunk's keys, by each ChunkRule: add() takes a key, of(query) is its share of
// the score.
struct MeanKey {
  float mean = 0;
  TF_DEVICE void add(float key) { mean += key; }
  TF_DEVICE void finish(int keys) { mean /= static_cast<float>(keys); }
  TF_DEVICE float of(float query) const { return query * mean; }
};
struct KeyBounds {
  float least = INFINITY, largest = -INFINITY;
  TF_DEVICE void add(float key) {
    least = fminf(least, key);
    largest = fmaxf(largest, key);
  }
  TF_DEVICE void finish(int /*keys*/) {}
  TF_DEVICE float of(float query) const { return query * (query < 0 ? least : largest); }
};

// One warp a chunk: lane l takes dimensions l, l + 32, ... of the chunk's keys.
template <class T, class Keys>
__global__ void __launch_bounds__(kThreads)
    score_kernel(const T* q, std::int64_t q_stride, int group, KvView kv, int chunk,
                 std::int64_t n_chunks, float* scores, std::int64_t stride) {
  const int head = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t c = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (c >= n_chunks) return;  // whole warps
  const T* const keys = static_cast<const T*>(kv.k) + head * kv.head_stride;
  float score = 0;
  for (int j = lane; j < kv.head_dim; j += 32) {
    Keys of_chunk;
    for (int i = 0; i < chunk; ++i) {
      of_chunk.add(to_float(keys[kv_element(c * chunk + i, j, kv.head_dim)]));
    }
    of_chunk.finish(chunk);
    TF_UNROLL_N(1)
    for (int g = 0; g < group; ++g) {
      score += of_chunk.of(to_float(q[(head * group + g) * q_stride + j]));
    }
  }
  score = warp_reduce(score, Add{});
  if (lane == 0) scores[head * stride + c] = score;
}

// A thread has one dimension of a chunk. grid: (dimension of any chunk, KV head)
template <class T>
__global__ void __launch_bounds__(kThreads)
    mean_keys_kernel(KvView src, int chunk, std::int64_t first, std::int64_t count, KvView dst) {
  const int head = static_cast<int>(blockIdx.y), d = src.head_dim;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, c = first + i / d;
  const int j = static_cast<int>(i % d);
  if (i >= count * d) return;
  const T* const keys = static_cast<const T*>(src.k) + head * src.head_stride;
  float sum = 0;
  TF_UNROLL_N(1)
  for (int r = 0; r < chunk; ++r) {
    sum += to_float(keys[element_of(src, true, c * chunk + r, j)]);
  }
  T* const means = static_cast<T*>(dst.k) + head * dst.head_stride;
  means[kv_element(c, j, d)] = from_float<T>(sum / static_cast<float>(chunk));
}

// A key that sorts ascending where scores fall, and by id among equal scores. Chunk 0 is first;
// what pads to a power of two is last.
TF_DEVICE std::uint64_t sort_key(float score, std::int64_t id) {
  if (id == 0) return 0;
  std::uint32_t bits = __float_as_uint(score == 0.0F ? 0.0F : score);  // -0 equals 0
  bits = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;       // rises with the score
  return (std::uint64_t{~bits} << 32 | static_cast<std::uint32_t>(id)) + 1;
}

__global__ void keys_kernel(const float* scores, std::int64_t stride, std::int64_t n,
                            std::int64_t padded, std::uint64_t* keys) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= padded) return;
  keys[blockIdx.y * padded + i] =
      i < n ? sort_key(scores[blockIdx.y * stride + i], i) : ~std::uint64_t{0};
}

// One exchange of a bitonic sort: key `low` of `keys` and the one `distance` after it, in order;
// `ascending` says in which.
TF_DEVICE void exchange(std::uint64_t* keys, std::int64_t low, std::int64_t distance,
                        bool ascending) {
  const std::uint64_t a = keys[low], b = keys[low + distance];
  if ((a > b) == ascending) {
    keys[low] = b;
    keys[low + distance] = a;
  }
}
// The first key of pair `pair`; distances are powers of two.
TF_DEVICE std::int64_t low_of(std::int64_t pair, std::int64_t distance) {
  return 2 * pair - (pair & (distance - 1));
}

// All exchanges at one distance inside runs of `run`, one a thread.
__global__ void exchange_kernel(std::uint64_t* keys, std::int64_t padded, std::int64_t run,
                                std::int64_t distance) {
  const std::int64_t pair = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (pair >= padded / 2) return;
  const std::int64_t low = low_of(pair, distance);
  exchange(keys + blockIdx.y * padded, low, distance, (low & run) == 0);
}

// All exchanges of runs first_run to last_run at distances inside a segment; a block a segment.
__global__ void __launch_bounds__(kThreads)
    segment_kernel(std::uint64_t* keys, std::int64_t padded, std::int64_t segment,
                   std::int64_t first_run, std::int64_t last_run) {
  TF_SHARED(std::uint64_t, mine);
  const std::int64_t begin = blockIdx.x * segment;
  std::uint64_t* const from = keys + blockIdx.y * padded + begin;
  for (std::int64_t i = threadIdx.x; i < segment; i += kThreads) mine[i] = from[i];
  for (std::int64_t run = first_run; run <= last_run; run *= 2) {
    for (std::int64_t distance = run < segment ? run / 2 : segment / 2; distance > 0;
         distance /= 2) {
      __syncthreads();
      for (std::int64_t pair = threadIdx.x; pair < segment / 2; pair += kThreads) {
        const std::int64_t low = low_of(pair, distance);
        exchange(mine, low, distance, ((begin + low) & run) == 0);
      }
    }
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < segment; i += kThreads) from[i] = mine[i];
}

__global__ void ids_kernel(const std::uint64_t* keys, std::int64_t padded, std::int64_t n,
                           std::int32_t* ids, std::int64_t stride) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::uint64_t key = keys[blockIdx.y * padded + i];
  ids[blockIdx.y * stride + i] = key == 0 ? 0 : static_cast<std::int32_t>((key - 1) & 0xffffffffU);
}

std::int64_t padded_size(std::int64_t n) {
  return static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 2))));
}
dim3 grid_of(std::int64_t n, std::int64_t heads) { return dims(ceil_div(n, kThreads), heads); }

}  // namespace

void score_chunks(const TensorView& q, const KvView& kv, int chunk, std::int64_t n_chunks,
                  const TensorView& scores, ChunkRule rule, cudaStream_t stream) {
  with_half(kv.format.type, [&](auto t) {
    using T = decltype(t);
    const auto kernel =
        rule == ChunkRule::kMeanKey ? score_kernel<T, MeanKey> : score_kernel<T, KeyBounds>;
    launch(kernel, dims(ceil_div(n_chunks, kWarps), kv.kv_heads), dims(kThreads), 0, stream,
           static_cast<const T*>(q.data), q.stride[0], static_cast<int>(q.shape[0]) / kv.kv_heads,
           kv, chunk, n_chunks, static_cast<float*>(scores.data), scores.stride[0]);
  });
}

void mean_keys(const KvView& src, int chunk, std::int64_t first, std::int64_t count,
               const KvView& dst, cudaStream_t stream) {
  with_half(src.format.type, [&](auto t) {
    launch(mean_keys_kernel<decltype(t)>,
           dims(ceil_div(count * src.head_dim, kThreads), src.kv_heads), dims(kThreads), 0, stream,
           src, chunk, first, count, dst);
  });
}

std::int64_t top_chunks_bytes(int kv_heads, std::int64_t n_chunks) {
  return kv_heads * padded_size(n_chunks) * static_cast<std::int64_t>(sizeof(std::uint64_t));
}

void top_chunks(const TensorView& scores, const TensorView& ids, void* workspace,
                cudaStream_t stream) {
  const std::int64_t heads = scores.shape[0], n = scores.shape[1], wanted = ids.shape[1];
  const std::int64_t padded = padded_size(n);
  auto* const keys = static_cast<std::uint64_t*>(workspace);
  launch(keys_kernel, grid_of(padded, heads), dims(kThreads), 0, stream,
         static_cast<const float*>(scores.data), scores.stride[0], n, padded, keys);
  const std::int64_t segment = std::min(padded, kSegment);
  const auto sort_segments = [&](std::int64_t first_run, std::int64_t last_run) {
    launch(segment_kernel, dims(padded / segment, heads), dims(kThreads),
           static_cast<std::size_t>(segment) * sizeof(std::uint64_t), stream, keys, padded, segment,
           first_run, last_run);
  };
  sort_segments(2, segment);
  for (std::int64_t run = 2 * segment; run <= padded; run *= 2) {
    for (std::int64_t distance = run / 2; distance >= segment; distance /= 2) {
      launch(exchange_kernel, grid_of(padded / 2, heads), dims(kThreads), 0, stream, keys, padded,
             run, distance);
    }
    sort_segments(run, run);
  }
  launch(ids_kernel, grid_of(wanted, heads), dims(kThreads), 0, stream,
         static_cast<const std::uint64_t*>(keys), padded, wanted,
         static_cast<std::int32_t*>(ids.data), ids.stride[0]);
}

}  // namespace triforce::kernels
