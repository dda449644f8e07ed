#include "kernels/kernels.h"

#include <algorithm>

#include "kernels/kv_layout.cuh"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 256;

// The K (blockIdx.z = 0) or V rows of a head, as 16-byte parts.
TF_DEVICE uint4* head_parts(const KvView& kv, int head, unsigned which) {
  auto* const rows = static_cast<std::uint16_t*>(which == 0 ? kv.k : kv.v);
  return reinterpret_cast<uint4*>(rows + head * kv.head_stride);
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

// A block moves one chunk of one head.
__global__ void __launch_bounds__(kThreads)
    gather_kernel(KvView src, const std::int32_t* ids, std::int64_t ids_stride, int chunk,
                  KvView dst) {
  const int head = static_cast<int>(blockIdx.y), d = src.head_dim, parts = d / kPartElements;
  const std::int64_t id = ids[head * ids_stride + blockIdx.x];
  if (id < 0 || (id + 1) * chunk > src.capacity) return;
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
  const std::int64_t blocks = ceil_div(count * src.head_dim / kPartElements, kThreads);
  launch(copy_rows_kernel,
         dims(overlap ? 1 : std::min<std::int64_t>(blocks, 1024), src.kv_heads, 2), dims(kThreads),
         0, stream, src, src_row, dst, dst_row, count);
}

void gather_chunks(const KvView& src, const TensorView& ids, int chunk, const KvView& dst,
                   cudaStream_t stream) {
  launch(gather_kernel, dims(ids.shape[1], src.kv_heads, 2), dims(kThreads), 0, stream, src,
         static_cast<const std::int32_t*>(ids.data), ids.stride[0], chunk, dst);
}

}  // namespace triforce::kernels
