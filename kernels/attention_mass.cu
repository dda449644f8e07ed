#include "kernels/attention_tile.cuh"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

// The scores of 64 keys anew, to their weights summed over rows. grid: (tile, KV head, lane from
// first_lane on)
template <class T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads)
    key_mass_kernel(Queries all, KvLanes lanes, int first_lane, Angles angles, float scale,
                    const SoftmaxStats* totals, float* key_mass) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y), rows = all.tokens * all.group;
  const KvView& kv = lanes.kv;
  const unsigned sequence = static_cast<unsigned>(first_lane) + blockIdx.z;
  const Queries q = lane_of(all, sequence);
  const std::int64_t first = std::int64_t{blockIdx.x} * kTileKeys, length = kv.length[sequence];
  const std::int64_t place = std::int64_t{sequence} * gridDim.y + head;
  TF_SHARED(uint4, tile);
  const HeadRows at = head_rows<kDim>(lanes, sequence, head, first);
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
      const SoftmaxStats total = totals[place * rows + row];
      mass[i / 2] += ptx::exp2(score[0][i] * scale - total.m) / total.l;
    }
  }
  TF_UNROLL
  for (int i = 0; i < 2; ++i) {
    mass[i] += __shfl_xor_sync(0xffffffffU, mass[i], 1);
    mass[i] += __shfl_xor_sync(0xffffffffU, mass[i], 2);
    if (lane % 4 == 0 && key + i * 8 < kv.capacity) {
      const std::int64_t mine = std::int64_t{blockIdx.z} * gridDim.y + head;
      key_mass[mine * kv.capacity + key + i * 8] = mass[i];
    }
  }
}

// Where the mass of each lane goes: [Hkv][chunks], `stride` elements between heads.
struct MassOfLanes {
  struct Lane {
    float* mass;
    std::int64_t stride;
  };
  Lane lanes[kMaxSequences];
};

// grid: (., KV head, lane)
__global__ void chunk_mass_kernel(const float* key_mass, std::int64_t capacity, int chunk,
                                  MassOfLanes to, std::int64_t chunks) {
  const std::int64_t c = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= chunks) return;
  const std::int64_t place = std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y;
  const float* const keys = key_mass + place * capacity + c * chunk;
  float sum = 0;
  for (int i = 0; i < chunk; ++i) sum += keys[i];
  to.lanes[blockIdx.z].mass[blockIdx.y * to.lanes[blockIdx.z].stride + c] = sum;
}

}  // namespace

void attention_mass(const Queries& q, const KvLanes& lanes, const RopeView& rope,
                    const SoftmaxStats* totals, float* key_mass, int first,
                    std::span<const TensorView> mass, int chunk, cudaStream_t stream) {
  const KvView& kv = lanes.kv;
  with_rows_of(kv, [&](auto t, auto dim) {
    launch(key_mass_kernel<decltype(t), dim>,
           dims(ceil_div(kv.capacity, kTileKeys), kv.kv_heads, mass.size()),
           dims(kAttentionThreads), kTileParts<dim> * sizeof(uint4), stream, q, lanes, first,
           angles_of(rope), score_scale(kv.head_dim), totals, key_mass);
  });
  constexpr int kThreads = 128;
  MassOfLanes to{};
  for (std::size_t i = 0; i < mass.size(); ++i) {
    to.lanes[i] = {mass[i].as<float>(), mass[i].stride[0]};
  }
  const std::int64_t chunks = mass.front().shape[1];
  launch(chunk_mass_kernel, dims(ceil_div(chunks, kThreads), kv.kv_heads, mass.size()),
         dims(kThreads), 0, stream, static_cast<const float*>(key_mass), kv.capacity, chunk, to,
         chunks);
}

}  // namespace triforce::kernels
