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

// As many threads in a row as columns are a group compute its scale, and each four codes; the same
// as quantise_group() of core/quantise.h. A row's end is padded with zeros to a whole group.
template <class T, int kBits, class Source>
__global__ void quantise_kernel(std::uint8_t* packed, std::int64_t groups, std::int64_t cols,
                                std::int64_t row_begin, const Source* src, std::int64_t stride) {
  using Group = PackedGroup<kBits>;
  constexpr float kMost = Group::kZero - 1;
  const std::int64_t col = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  const std::int64_t row = row_begin + blockIdx.y, group = col / kWeightGroup;
  float x[4] = {};
  std::uint32_t largest = 0;  // magnitudes are in order as integers, and NaNs above them
  TF_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (col + i < cols)
      x[i] = to_float(from_float<T>(to_float(src[blockIdx.y * stride + col + i])));
    largest = max(largest, __float_as_uint(x[i]) & 0x7fffffffU);
  }
  TF_UNROLL
  for (int mask = kWeightGroup / 8; mask > 0; mask /= 2) {
    largest = max(largest, __shfl_xor_sync(0xffffffffU, largest, mask));
  }
  if (group >= groups) return;
  const __half bits = __float2half_rn(__fdiv_rn(__uint_as_float(largest), kMost));
  const float scale = __half2float(bits);
  std::uint8_t* const to =
      packed + (row / kTileRows * groups + group) * std::int64_t{Group::kBytes};
  const int r = static_cast<int>(row % kTileRows), c = static_cast<int>(col % kWeightGroup);
  std::uint32_t codes[4];
  TF_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float code = rintf(__fdiv_rn(x[i], scale));  // NaN: 0 / 0, or not finite
    const float kept = code > kMost ? kMost : code < -kMost ? -kMost : code == code ? code : 0.0F;
    codes[i] = static_cast<std::uint32_t>(static_cast<int>(kept) + Group::kZero);
  }
  std::uint8_t* const at = to + Group::code_at(r, c);
  if constexpr (kBits == 4) {  // two in a byte
    TF_UNROLL
    for (int i = 0; i < 2; ++i) {
      at[Group::code_offset(i)] = static_cast<std::uint8_t>(
          codes[i] << Group::code_shift(i) | codes[i + 2] << Group::code_shift(i + 2));
    }
  } else {
    TF_UNROLL
    for (int i = 0; i < 4; ++i) {
      at[Group::code_offset(i)] = static_cast<std::uint8_t>(codes[i]);
    }
  }
  if (c == 0) *reinterpret_cast<__half*>(to + Group::scale_at(r)) = bits;
}

dim3 grid_of(std::int64_t rows, std::int64_t cols) {
  return dims(ceil_div(cols, 4 * kThreads), rows);
}

// Rows of a matrix that are set from `src`.
template <class T, class Source>
void pack(T /*weights*/, const Matrix& m, std::int64_t row_begin, std::int64_t rows,
          const Source* src, std::int64_t stride, cudaStream_t stream) {
  launch(pack_kernel<T, Source>, grid_of(rows, m.cols), dims(kThreads), 0, stream,
         static_cast<T*>(m.storage.data()), ceil_div(m.cols, kTileCols), m.cols, row_begin, src,
         stride);
}
template <class T, int kBits, class Source>
void pack(Codes<T, kBits> /*weights*/, const Matrix& m, std::int64_t row_begin, std::int64_t rows,
          const Source* src, std::int64_t stride, cudaStream_t stream) {
  launch(quantise_kernel<T, kBits, Source>, grid_of(rows, m.cols), dims(kThreads), 0, stream,
         static_cast<std::uint8_t*>(m.storage.data()), ceil_div(m.cols, kWeightGroup), m.cols,
         row_begin, src, stride);
}

}  // namespace

std::int64_t packed_bytes(std::int64_t rows, std::int64_t cols, WeightFormat format) {
  const std::int64_t strips = ceil_div(rows, kTileRows), groups = ceil_div(cols, kWeightGroup);
  switch (format.quantisation) {
    case Quantisation::kNone:
      break;
    case Quantisation::kInt8:
      return strips * groups * PackedGroup<8>::kBytes;
    case Quantisation::kInt4:
      return strips * groups * PackedGroup<4>::kBytes;
  }
  return strips * ceil_div(cols, kTileCols) * kTileElements * 2;
}

void pack_rows(const Matrix& m, std::int64_t row_begin, const TensorView& src,
               cudaStream_t stream) {
  with_weights(m.format, [&](auto weights) {
    with_float(src.dtype, [&](auto s) {
      const auto* const from = static_cast<const decltype(s)*>(src.data);
      const std::int64_t stride = src.stride[0];
      in_parts(src.shape[0], [&](std::int64_t at, std::int64_t rows) {
        pack(weights, m, row_begin + at, rows, from + at * stride, stride, stream);
      });
    });
  });
}

void unpack_rows(const Matrix& m, std::int64_t row_begin, const TensorView& dst,
                 cudaStream_t stream) {
  with_half(m.format.type, [&](auto t) {
    using T = decltype(t);
    in_parts(dst.shape[0], [&](std::int64_t at, std::int64_t rows) {
      launch(unpack_kernel<T>, grid_of(rows, m.cols), dims(kThreads), 0, stream,
             static_cast<const T*>(m.storage.data()), ceil_div(m.cols, kTileCols), m.cols,
             row_begin + at, static_cast<T*>(dst.data) + at * dst.stride[0], dst.stride[0]);
    });
  });
}

}  // namespace triforce::kernels
