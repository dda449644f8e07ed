#include "kernels/kernels.h"

#include <algorithm>

#include "kernels/element.cuh"
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

// What a launch of keep_rows() moves, where.
struct KeptRows {
  std::uint16_t *k[kKeptCaches], *v[kKeptCaches];
  std::int64_t head_stride[kKeptCaches];
  std::int64_t first;
  int count;
  std::int16_t from[kMaxTreeRows];
};

// A thread moves what it has of a head's rows, one after the other: a row comes from no earlier
// one, so rows may be read ahead of those that are written. kv: any of the caches. grid: (Unit of a
// row of any head, K or V, cache)
template <class Unit>
__global__ void __launch_bounds__(kThreads) keep_rows_kernel(KvView kv, KeptRows kept) {
  constexpr int kElements = sizeof(Unit) / 2, kAhead = 8;
  const int units = kv.head_dim / kElements;
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int head = i / units, dim = i % units * kElements;
  if (head >= kv.kv_heads) return;
  const bool is_k = blockIdx.y == 0;
  std::uint16_t* const rows =
      (is_k ? kept.k[blockIdx.z] : kept.v[blockIdx.z]) + head * kept.head_stride[blockIdx.z];
  const auto at = [&](int row) {
    return reinterpret_cast<Unit*>(rows + element_of(kv, is_k, kept.first + row, dim));
  };
  for (int begin = 0; begin < kept.count; begin += kAhead) {
    Unit ahead[kAhead] = {};
    TF_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      if (begin + j < kept.count) ahead[j] = *at(kept.from[begin + j]);
    }
    TF_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      if (begin + j < kept.count) *at(begin + j) = ahead[j];
    }
  }
}

// A block moves one chunk of one head.
__global__ void __launch_bounds__(kThreads)
    gather_kernel(KvView src, const std::int32_t* ids, std::int64_t ids_stride, int chunk,
                  KvView dst, ExpandedKeys expanded) {
  const int head = static_cast<int>(blockIdx.y), d = src.head_dim, parts = d / kPartElements;
  const std::int64_t id = ids[head * ids_stride + blockIdx.x];
  if (id < 0 || (id + 1) * chunk > src.capacity) return;
  if (blockIdx.z == 0 && expanded.contains(blockIdx.x, id, chunk)) return;
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

// A thread turns one pair of dimensions of a key back. grid: (pair of any row, KV head)
template <class T>
__global__ void __launch_bounds__(kThreads)
    read_keys_kernel(KvView src, std::int64_t row, std::int64_t count, Angles angles, float* out,
                     std::int64_t stride) {
  const int head = static_cast<int>(blockIdx.y), half = src.head_dim / 2;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, r = i / half;
  const int j = static_cast<int>(i % half);
  if (r >= count) return;
  const T* const keys = static_cast<const T*>(src.k) + head * src.head_stride;
  float low = to_float(keys[element_of(src, true, row + r, j)]),
        high = to_float(keys[element_of(src, true, row + r, j + half)]);
  if (angles.cos != nullptr) {
    const float c = angles.cos[(row + r) * angles.stride + j],
                s = angles.sin[(row + r) * angles.stride + j];
    const float size = c * c + s * s, turned = low * c + high * s;  // tables may carry a factor
    high = (high * c - low * s) / size;
    low = turned / size;
  }
  float* const to = out + r * stride + head * src.head_dim;
  to[j] = low;
  to[j + half] = high;
}

}  // namespace

void read_keys(const KvView& src, std::int64_t row, std::int64_t count, const RopeView& rope,
               const TensorView& out, cudaStream_t stream) {
  with_half(src.format.type, [&](auto t) {
    launch(read_keys_kernel<decltype(t)>,
           dims(ceil_div(count * src.head_dim / 2, kThreads), src.kv_heads), dims(kThreads), 0,
           stream, src, row, count, angles_of(rope), static_cast<float*>(out.data), out.stride[0]);
  });
}

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

void keep_rows(std::span<const KvView> caches, std::int64_t first,
               std::span<const std::int16_t> from, cudaStream_t stream) {
  const KvView& kv = caches.front();
  TF_CHECK(caches.size() <= kKeptCaches, "keep_rows: {} caches", caches.size());
  KeptRows kept{};
  for (std::size_t i = 0; i < caches.size(); ++i) {
    kept.k[i] = static_cast<std::uint16_t*>(caches[i].k);
    kept.v[i] = static_cast<std::uint16_t*>(caches[i].v);
    kept.head_stride[i] = caches[i].head_stride;
  }
  // The first ones may lie where they are to lie.
  std::int16_t there = 0;
  while (there < std::ssize(from) && from[static_cast<std::size_t>(there)] == there) ++there;
  kept.first = first + there;
  for (const std::int16_t row : from.subspan(static_cast<std::size_t>(there))) {
    kept.from[kept.count++] = static_cast<std::int16_t>(row - there);
  }
  const std::int64_t units =
      std::int64_t{kv.kv_heads} * kv.head_dim / (kv.on_host ? 1 : kPartElements);
  launch(kv.on_host ? keep_rows_kernel<std::uint16_t> : keep_rows_kernel<uint4>,
         dims(ceil_div(units, kThreads), 2, std::ssize(caches)), dims(kThreads), 0, stream, kv,
         kept);
}

void gather_chunks(const KvView& src, const TensorView& ids, int chunk, const KvView& dst,
                   const ExpandedKeys& expanded, cudaStream_t stream) {
  launch(gather_kernel, dims(ids.shape[1], src.kv_heads, 2), dims(kThreads), 0, stream, src,
         static_cast<const std::int32_t*>(ids.data), ids.stride[0], chunk, dst, expanded);
}

}  // namespace triforce::kernels
