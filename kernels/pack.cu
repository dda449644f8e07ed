#include "kernels/kernels.h"

#include "kernels/element.cuh"
#include "kernels/launch.cuh"
#include "kernels/packing.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 256;

// One thread moves four elements of a row; a block's threads are consecutive in the row.
template <class T, class Source>
__global__ void pack_kernel(T* packed, std::int64_t k_tiles, std::int64_t cols,
                            std::int64_t row_begin, const Source* src, std::int64_t stride) {
  const std::int64_t col = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  const std::int64_t row = blockIdx.y;
  if (col >= cols) return;
  T* const to = packed + packed_index(row_begin + row, col, k_tiles);
  for (int i = 0; i < 4 && col + i < cols; ++i) {
    to[packed_offset(i)] = from_float<T>(to_float(src[row * stride + col + i]));
  }
}

template <class T>
__global__ void unpack_kernel(const T* packed, std::int64_t k_tiles, std::int64_t cols,
                              std::int64_t row_begin, T* dst, std::int64_t stride) {
  const std::int64_t col = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  const std::int64_t row = blockIdx.y;
  if (col >= cols) return;
  const T* const from = packed + packed_index(row_begin + row, col, k_tiles);
  for (int i = 0; i < 4 && col + i < cols; ++i) {
    dst[row * stride + col + i] = from[packed_offset(i)];
  }
}

dim3 grid_of(std::int64_t rows, std::int64_t cols) {
  return dims(ceil_div(cols, 4 * kThreads), rows);
}

}  // namespace

std::int64_t packed_bytes(std::int64_t rows, std::int64_t cols) {
  return ceil_div(rows, kTileRows) * ceil_div(cols, kTileCols) * kTileElements * 2;
}

void pack_rows(const Matrix& m, std::int64_t row_begin, const TensorView& src,
               cudaStream_t stream) {
  with_half(m.dtype, [&](auto t) {
    with_float(src.dtype, [&](auto s) {
      using T = decltype(t);
      using S = decltype(s);
      in_parts(src.shape[0], [&](std::int64_t at, std::int64_t rows) {
        launch(pack_kernel<T, S>, grid_of(rows, m.cols), dims(kThreads), 0, stream,
               static_cast<T*>(m.storage.data()), ceil_div(m.cols, kTileCols), m.cols,
               row_begin + at, static_cast<const S*>(src.data) + at * src.stride[0], src.stride[0]);
      });
    });
  });
}

void unpack_rows(const Matrix& m, std::int64_t row_begin, const TensorView& dst,
                 cudaStream_t stream) {
  with_half(m.dtype, [&](auto t) {
    using T = decltype(t);
    in_parts(dst.shape[0], [&](std::int64_t at, std::int64_t rows) {
      launch(unpack_kernel<T>, grid_of(rows, m.cols), dims(kThreads), 0, stream,
             static_cast<const T*>(m.storage.data()), ceil_div(m.cols, kTileCols), m.cols,
             row_begin + at, static_cast<T*>(dst.data) + at * dst.stride[0], dst.stride[0]);
    });
  });
}

}  // namespace triforce::kernels
