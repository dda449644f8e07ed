#include "kernels/attention_tile.cuh"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

// The scores of 64 keys anew, to their weights summed over rows. grid: (tile, KV head)
template <class T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads)
    key_mass_kernel(Queries q, KvView kv, Angles angles, float scale, const SoftmaxStats* totals,
                    float* key_mass) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y), rows = q.tokens * q.group;
  const std::int64_t first = std::int64_t{blockIdx.x} * kTileKeys, length = *kv.length;
  TF_SHARED(uint4, tile);
  const HeadRows at = head_rows<kDim>(kv, head, first);
  load_tile<kDim>(at.k, rows_left<kDim>(at.there), tile);
  ptx::cp_async_commit();
  Rotation<T, kDim> rotation;
  if (kv.format.rotate_on_read) rotation.fetch(first, angles, length);
  ptx::cp_async_wait<0>();
  __syncthreads();
  T* const keys = reinterpret_cast<T*>(tile);
  if (kv.format.rotate_on_read) {
    rotation.rotate(keys, first, angles, length);
    __syncthreads();
  }
  const std::int64_t key = first + warp * 16 + lane / 4;  // and key + 8
  float mass[2] = {0, 0};
  for (int group = 0; group < rows; group += 8) {
    std::uint32_t query[1][kDim / 16][2];
    load_queries<T, kDim>(q, head, group, rows, lane, query[0]);
    float score[1][4];
    key_scores<T, kDim, 1>(keys, warp, lane, query, score);
    TF_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = group + lane % 4 * 2 + i % 2;
      if (row >= rows || key + i / 2 * 8 >= visible_keys(q, length, row)) continue;
      const SoftmaxStats total = totals[std::int64_t{head} * rows + row];
      mass[i / 2] += ptx::exp2(score[0][i] * scale - total.m) / total.l;
    }
  }
  TF_UNROLL
  for (int i = 0; i < 2; ++i) {
    mass[i] += __shfl_xor_sync(0xffffffffU, mass[i], 1);
    mass[i] += __shfl_xor_sync(0xffffffffU, mass[i], 2);
    if (lane % 4 == 0 && key + i * 8 < kv.capacity) {
      key_mass[head * kv.capacity + key + i * 8] = mass[i];
    }
  }
}

__global__ void chunk_mass_kernel(const float* key_mass, std::int64_t capacity, int chunk,
                                  float* mass, std::int64_t stride, std::int64_t chunks) {
  const std::int64_t c = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= chunks) return;
  const float* const keys = key_mass + blockIdx.y * capacity + c * chunk;
  float sum = 0;
  for (int i = 0; i < chunk; ++i) sum += keys[i];
  mass[blockIdx.y * stride + c] = sum;
}

}  // namespace

void attention_mass(const Queries& q, const KvView& kv, const RopeView& rope,
                    const SoftmaxStats* totals, float* key_mass, const TensorView& mass, int chunk,
                    cudaStream_t stream) {
  with_rows_of(kv, [&](auto t, auto dim) {
    launch(key_mass_kernel<decltype(t), dim>, dims(ceil_div(kv.capacity, kTileKeys), kv.kv_heads),
           dims(kAttentionThreads), kTileParts<dim> * sizeof(uint4), stream, q, kv, angles_of(rope),
           score_scale(kv.head_dim), totals, key_mass);
  });
  constexpr int kThreads = 128;
  launch(chunk_mass_kernel, dims(ceil_div(mass.shape[1], kThreads), kv.kv_heads), dims(kThreads), 0,
         stream, static_cast<const float*>(key_mass), kv.capacity, chunk,
         static_cast<float*>(mass.data), mass.stride[0], mass.shape[1]);
}

}  // namespace triforce::kernels
