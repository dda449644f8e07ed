#include "kernels/kernels.h"

#include "kernels/element.cuh"
#include "kernels/launch.cuh"
#include "kernels/packing.cuh"
#include "kernels/ptx.cuh"

namespace triforce::kernels {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
// Tiles of weights a warp has under way: 8 warps x 4 x 1 KiB, and two or more blocks on a
// multiprocessor, cover the latency of an H200's memory.
constexpr int kAhead = 4;
constexpr int kTokens = 8;  // columns of operand B

// Eight elements of x from column k on; zeros from K on and for rows that are not there.
template <class T>
TF_DEVICE uint4 load_x(const T* row, int k, int cols, bool aligned) {
  if (row == nullptr || k >= cols) return uint4{0, 0, 0, 0};
  if (aligned && k + 8 <= cols) return *reinterpret_cast<const uint4*>(row + k);
  std::uint32_t words[4] = {0, 0, 0, 0};
  for (int i = 0; i < 8 && k + i < cols; ++i) {
    std::uint16_t bits;
    memcpy(&bits, row + k + i, 2);
    words[i / 2] |= std::uint32_t{bits} << (16 * (i % 2));
  }
  return uint4{words[0], words[1], words[2], words[3]};
}

// out[rows, cols] = the sum over warps of partial [warp][row][kTileRows columns], added to what is
// there if `accumulate`.
template <class Out, int kGroups>
TF_DEVICE void add_warps(const float* partial, int rows, int cols, Out* out,
                         std::int64_t out_stride, bool accumulate) {
  constexpr int kOutputs = kGroups * kTokens * kTileRows;
  for (int o = static_cast<int>(threadIdx.x); o < kOutputs; o += kThreads) {
    const int token = o / kTileRows, column = o % kTileRows;
    if (token >= rows || column >= cols) continue;
    float total = partial[o];
    TF_UNROLL
    for (int w = 1; w < kWarps; ++w) total += partial[w * kOutputs + o];
    Out* const to = out + token * out_stride + column;
    if constexpr (std::is_same_v<Out, float>) {
      *to = accumulate ? *to + total : total;
    } else {
      *to = from_float<Out>(total);
    }
  }
}

// A block makes 16 columns of the output for all rows. kGroups: groups of 8 rows of x.
template <class T, class Out, int kGroups>
__global__ void __launch_bounds__(kThreads)
    linear_kernel(const T* x, std::int64_t x_stride, int rows, int cols, const uint4* weights,
                  int k_tiles, Out* out, std::int64_t out_stride, int out_cols, bool accumulate) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, pair = lane % 4;
  const bool aligned = x_stride % 8 == 0;
  const uint4* const strip = weights + std::int64_t{blockIdx.x} * k_tiles * 64 + lane;
  const T* row[kGroups];
  TF_UNROLL
  for (int j = 0; j < kGroups; ++j) {
    const int token = j * kTokens + group;
    row[j] = token < rows ? x + token * x_stride : nullptr;
  }
  float sum[kGroups][4] = {};
  for (int first = warp; first < k_tiles; first += kWarps * kAhead) {
    uint4 a[kAhead][2];
    TF_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const int tile = first + i * kWarps;
      if (tile < k_tiles) {
        a[i][0] = ptx::load_stream(strip + std::int64_t{tile} * 64);
        a[i][1] = ptx::load_stream(strip + std::int64_t{tile} * 64 + 32);
      }
    }
    TF_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const int tile = first + i * kWarps;
      if (tile >= k_tiles) break;  // the same for all lanes
      const std::uint32_t a0[4] = {a[i][0].x, a[i][0].y, a[i][0].z, a[i][0].w};
      const std::uint32_t a1[4] = {a[i][1].x, a[i][1].y, a[i][1].z, a[i][1].w};
      TF_UNROLL
      for (int j = 0; j < kGroups; ++j) {
        const uint4 b = load_x(row[j], tile * kTileCols + pair * 8, cols, aligned);
        const std::uint32_t b0[2] = {b.x, b.y}, b1[2] = {b.z, b.w};
        ptx::mma<T>(sum[j], a0, b0);
        ptx::mma<T>(sum[j], a1, b1);
      }
    }
  }
  TF_SHARED(float, partial);
  TF_UNROLL
  for (int j = 0; j < kGroups; ++j) {
    float* const mine = partial + (warp * kGroups + j) * kTokens * kTileRows;
    TF_UNROLL
    for (int i = 0; i < 4; ++i) {
      mine[(pair * 2 + i % 2) * kTileRows + group + i / 2 * 8] = sum[j][i];
    }
  }
  __syncthreads();
  const int first = static_cast<int>(blockIdx.x) * kTileRows;
  add_warps<Out, kGroups>(partial, rows, min(out_cols - first, kTileRows), out + first, out_stride,
                          accumulate);
}

template <class T, class Out>
void run(const TensorView& x, const Matrix& w, const TensorView& out, bool accumulate,
         cudaStream_t stream) {
  const int rows = static_cast<int>(x.shape[0]);
  with_count<kMaxBatchInvariantRows / kTokens>(ceil_div(rows, kTokens), [&](auto groups) {
    launch(linear_kernel<T, Out, groups>, dims(tiles_of(w.rows, kTileRows)), dims(kThreads),
           sizeof(float) * kWarps * kTokens * kTileRows * groups, stream,
           static_cast<const T*>(x.data), x.stride[0], rows, static_cast<int>(w.cols),
           static_cast<const uint4*>(w.storage.data()),
           static_cast<int>(tiles_of(w.cols, kTileCols)), static_cast<Out*>(out.data),
           out.stride[0], static_cast<int>(w.rows), accumulate);
  });
}

}  // namespace

void linear(const TensorView& x, const Matrix& w, const TensorView& out, bool accumulate,
            cudaStream_t stream) {
  with_half(w.dtype, [&](auto t) {
    using T = decltype(t);
    if (out.dtype == DType::kF32) {
      run<T, float>(x, w, out, accumulate, stream);
    } else {
      run<T, T>(x, w, out, false, stream);
    }
  });
}

}  // namespace triforce::kernels
