#include "kernels/kernels.h"

#include <algorithm>

#include "kernels/kv_layout.cuh"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 256;

// The K (blockIdx.z = 0) or V rows of a head.
TF_DEVICE std::uint16_t* head_rows(const KvView& kv, int head, unsigned which) {
  return static_cast<std::uint16_t*>(which == 0 ? kv.k : kv.v) + head * kv.head_stride;
}
// The same as 16-byte parts.
TF_DEVICE uint4* head_parts(const KvView& kv, int head, unsigned which) {
  return reinterpret_cast<uint4*>(head_rows(kv, head, which));
}
TF_DEVICE std::int64_t part_index(std::int64_t row, int part, int head_dim) {
  return kv_part(row, part, head_dim) / kPartElements;
}

// Parts [first, first + count) of the rows from src_row on, kThreads at a time: all threads read
// before one writes, so that rows may move down over themselves.
__global__ void __launch_bounds__(kThreads)
    copy_rows_kernel(KvView src, std::int64_t src_row, KvView dst, std::int64_t dst_row,
                     std::int64_t count) {
  const int head = static_cast<int>(blockIdx.y), d = src.head_dim, parts = d / kPartElements;
  const uint4* const from = head_parts(src, head, blockIdx.z);
  uint4* const to = head_parts(dst, head, blockIdx.z);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  TF_UNROLL_N(1)
  for (std::int64_t first = std::int64_t{blockIdx.x} * kThreads; first < count * parts;
       first += step) {
    const std::int64_t i = first + threadIdx.x, row = i / parts;
    const int part = static_cast<int>(i % parts);
    uint4 value{};
    if (row < count) value = from[part_index(src_row + row, part, d)];
    __syncthreads();
    if (row < count) to[part_index(dst_row + row, part, d)] = value;
    __syncthreads();
  }
}

// `count` rows of a head between a cache in a device's order and one on the host, by `threads`
// threads, as their elements lie on the host: a warp reads or writes one piece of host memory.
TF_DEVICE void reorder_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                            std::int64_t dst_row, std::int64_t count, std::int64_t thread,
                            std::int64_t threads) {
  const int head = static_cast<int>(blockIdx.y), d = src.head_dim, pair = pairing(src.format.type);
  const bool is_k = blockIdx.z == 0;
  const std::uint16_t* const from = head_rows(src, head, blockIdx.z);
  std::uint16_t* const to = head_rows(dst, head, blockIdx.z);
  const std::int64_t first = src.on_host ? src_row : dst_row, unit = is_k ? kHostKeyBlock : pair;
  const std::int64_t end = (first + count + unit - 1) / unit * unit * d;
  for (std::int64_t i = first / unit * unit * d + thread; i < end; i += threads) {
    const HostKvPlace place = is_k ? k_place(pair, d, i) : v_place(pair, d, i);
    const std::int64_t row = place.token - first;
    if (row < 0 || row >= count) continue;
    to[element_of(dst, is_k, dst_row + row, place.dim)] =
        from[element_of(src, is_k, src_row + row, place.dim)];
  }
}

__global__ void __launch_bounds__(kThreads)
    reorder_rows_kernel(KvView src, std::int64_t src_row, KvView dst, std::int64_t dst_row,
                        std::int64_t count) {
  reorder_rows(src, src_row, dst, dst_row, count, std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
               std::int64_t{gridDim.x} * kThreads);
}

// A block moves one chunk of one head.
__global__ void __launch_bounds__(kThreads)
    gather_kernel(KvView src, const std::int32_t* ids, std::int64_t ids_stride, int chunk,
                  KvView dst) {
  const int head = static_cast<int>(blockIdx.y), d = src.head_dim, parts = d / kPartElements;
  const std::int64_t id = ids[head * ids_stride + blockIdx.x];
  if (id < 0 || (id + 1) * chunk > src.capacity) return;
  if (src.on_host || dst.on_host) {
    reorder_rows(src, id * chunk, dst, std::int64_t{blockIdx.x} * chunk, chunk, threadIdx.x,
                 kThreads);
    return;
  }
  const uint4* const from = head_parts(src, head, blockIdx.z);
  uint4* const to = head_parts(dst, head, blockIdx.z);
  for (int i = static_cast<int>(threadIdx.x); i < chunk * parts; i += kThreads) {
    to[part_index(std::int64_t{blockIdx.x} * chunk + i / parts, i % parts, d)] =
        from[part_index(id * chunk + i / parts, i % parts, d)];
  }
}

}  // namespace

void copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst, std::int64_t dst_row,
               std::int64_t count, cudaStream_t stream) {
  if (src.k == dst.k && src_row == dst_row) return;
  const bool overlap = src.k == dst.k && src_row < dst_row + count;
  const bool reorder = src.on_host || dst.on_host;
  const std::int64_t steps =
      ceil_div(count * src.head_dim / (reorder ? 1 : kPartElements), kThreads);
  const std::int64_t blocks = overlap ? 1 : std::min<std::int64_t>(steps, 1024);
  launch(reorder ? reorder_rows_kernel : copy_rows_kernel, dims(blocks, src.kv_heads, 2),
         dims(kThreads), 0, stream, src, src_row, dst, dst_row, count);
}

void gather_chunks(const KvView& src, const TensorView& ids, int chunk, const KvView& dst,
                   cudaStream_t stream) {
  launch(gather_kernel, dims(ids.shape[1], src.kv_heads, 2), dims(kThreads), 0, stream, src,
         static_cast<const std::int32_t*>(ids.data), ids.stride[0], chunk, dst);
}

}  // namespace triforce::kernels
