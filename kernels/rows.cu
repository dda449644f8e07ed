#include "kernels/kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/element.cuh"
#include "kernels/launch.cuh"
#include "kernels/packing.cuh"
#include "kernels/ptx.cuh"
#include "kernels/reduce.cuh"
#include "kernels/swiglu.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 256;

// A thread has four elements of a row, which lie in pairs (packed_offset). Those past its width are
// padding.
template <class T>
__global__ void embed_kernel(const std::int32_t* tokens, const T* table, std::int64_t vocab,
                             std::int64_t width, std::int64_t k_tiles, float* out,
                             std::int64_t stride) {
  const std::int64_t col = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  if (col >= width) return;
  const std::int64_t token = tokens[blockIdx.y];
  const std::int64_t row = token >= 0 && token < vocab ? token : 0;
  const auto* const pairs =
      reinterpret_cast<const std::uint32_t*>(table + packed_index(row, col, k_tiles));
  const std::uint32_t bits[2] = {pairs[0], pairs[packed_offset(2) / 2]};
  T values[4];
  memcpy(values, bits, sizeof values);
  float* const to = out + blockIdx.y * stride + col;
  TF_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (col + i < width) to[i] = to_float(values[i]);
  }
}

// A thread's elements begin, begin + kThreads, ... of a row, kEach at most: all on their way at
// once; zeros past the row's end.
template <int kEach>
TF_DEVICE void load_elements(const float* row, std::int64_t begin, std::int64_t width,
                             float (&into)[kEach]) {
  TF_UNROLL
  for (int j = 0; j < kEach; ++j) {
    const std::int64_t i = begin + j * kThreads;
    into[j] = i < width ? row[i] : 0.0F;
  }
}

// kEach * kThreads elements of a row are in registers at a time; of a wider row the parts are read
// again. `out` may be x's memory, so that no load could pass a store.
template <class Out, int kEach>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(const float* x, std::int64_t x_stride, const float* w, std::int64_t width,
                    float eps, Out* out, std::int64_t out_stride) {
  TF_SHARED(float, scratch);
  constexpr std::int64_t kSpan = kEach * kThreads;
  const float* const row = x + blockIdx.x * x_stride;
  float values[kEach] = {}, weights[kEach];
  ptx::wait_for_earlier_grids();
  ptx::let_next_grid_start();
  load_elements(w, threadIdx.x, width, weights);
  float sum = 0;
  for (std::int64_t begin = threadIdx.x; begin < width; begin += kSpan) {
    load_elements(row, begin, width, values);
    TF_UNROLL
    for (int j = 0; j < kEach; ++j) sum = fmaf(values[j], values[j], sum);
  }
  const float mean = block_reduce(sum, scratch, Add{}) / static_cast<float>(width);
  const float scale = 1.0F / sqrtf(mean + eps);
  for (std::int64_t begin = threadIdx.x; begin < width; begin += kSpan) {
    if (width > kSpan) {
      load_elements(w, begin, width, weights);
      load_elements(row, begin, width, values);
    }
    TF_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const std::int64_t i = begin + j * kThreads;
      if (i < width) {
        out[blockIdx.x * out_stride + i] = from_float<Out>(values[j] * scale * weights[j]);
      }
    }
  }
}

// Heads of a block, a warp each, and the most elements of a lane.
constexpr int kHeads = kThreads / 32, kMostOfHead = 256 / 32;

template <class T>
__global__ void head_norm_kernel(T* x, std::int64_t token_stride, std::int64_t head_stride,
                                 const float* w, int heads, int head_dim, float eps) {
  const int head = static_cast<int>(blockIdx.x) * kHeads + static_cast<int>(threadIdx.x) / 32,
            lane = static_cast<int>(threadIdx.x) % 32;
  if (head >= heads) return;
  T* const row = x + blockIdx.y * token_stride + head * head_stride;
  const float* const weights = w + std::int64_t{head} * head_dim;
  float values[kMostOfHead], scales[kMostOfHead], sum = 0;
  TF_UNROLL
  for (int i = 0; i < kMostOfHead; ++i) {
    const int j = lane + i * 32;
    values[i] = j < head_dim ? to_float(row[j]) : 0.0F;
    scales[i] = j < head_dim ? weights[j] : 0.0F;
  }
  TF_UNROLL
  for (int i = 0; i < kMostOfHead; ++i) sum = fmaf(values[i], values[i], sum);
  const float scale = 1.0F / sqrtf(warp_reduce(sum, Add{}) / static_cast<float>(head_dim) + eps);
  TF_UNROLL
  for (int i = 0; i < kMostOfHead; ++i) {
    const int j = lane + i * 32;
    if (j < head_dim) row[j] = from_float<T>(values[i] * scale * scales[i]);
  }
}

template <class T>
__global__ void set_bias_kernel(const float* bias, std::int64_t width, T* out, std::int64_t stride,
                                bool accumulate) {
  const std::int64_t col = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (col >= width) return;
  T* const to = out + blockIdx.y * stride + col;
  *to = from_float<T>(accumulate ? to_float(*to) + bias[col] : bias[col]);
}

// Features of a thread: their loads are under way together.
constexpr int kSwigluEach = 4;
template <class T>
__global__ void swiglu_kernel(const T* gate_up, std::int64_t in_stride, std::int64_t width, T* out,
                              std::int64_t out_stride) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kSwigluEach * kThreads + threadIdx.x;
  const T* const row = gate_up + blockIdx.y * in_stride;
  T gate[kSwigluEach], up[kSwigluEach];
  TF_UNROLL
  for (int i = 0; i < kSwigluEach; ++i) {
    const std::int64_t col = min(first + i * kThreads, width - 1);
    gate[i] = row[col];
    up[i] = row[width + col];
  }
  TF_UNROLL
  for (int i = 0; i < kSwigluEach; ++i) {
    const std::int64_t col = first + i * kThreads;
    if (col < width) out[blockIdx.y * out_stride + col] = swiglu_of(gate[i], up[i]);
  }
}

__global__ void add_parts_kernel(const float* parts, std::int64_t part_stride, std::int64_t count,
                                 std::int64_t width, float* x, std::int64_t stride) {
  const std::int64_t col = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (col >= width) return;
  const float* const part = parts + blockIdx.y * width + col;
  float sum = *part;
  for (std::int64_t i = 1; i < count; ++i) sum += part[i * part_stride];
  x[blockIdx.y * stride + col] += sum;
}

template <class From, class To>
__global__ void convert_kernel(const From* src, std::int64_t src_stride, std::int64_t width,
                               To* dst, std::int64_t dst_stride) {
  const std::int64_t col = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (col >= width) return;
  if constexpr (std::is_same_v<From, To>) {
    dst[blockIdx.y * dst_stride + col] = src[blockIdx.y * src_stride + col];
  } else {
    dst[blockIdx.y * dst_stride + col] =
        from_float<To>(to_float(src[blockIdx.y * src_stride + col]));
  }
}

dim3 grid_of(std::int64_t width, std::int64_t rows) {
  return dims(ceil_div(width, kThreads), rows);
}

}  // namespace

void embed(const TensorView& tokens, const PackedMatrix& table, const TensorView& out,
           cudaStream_t stream) {
  with_half(table.format.type, [&](auto t) {
    using T = decltype(t);
    in_parts(out.shape[0], [&](std::int64_t first, std::int64_t rows) {
      launch(embed_kernel<T>, grid_of(ceil_div(table.cols, 4), rows), dims(kThreads), 0, stream,
             tokens.as<const std::int32_t>() + first, static_cast<const T*>(table.data), table.rows,
             table.cols, ceil_div(table.cols, kTileCols), out.as<float>() + first * out.stride[0],
             out.stride[0]);
    });
  });
}

void rms_norm(const TensorView& x, const TensorView& w, float eps, const TensorView& out,
              cudaStream_t stream) {
  // Rows of 1,024 elements (drafters) and of 5,120 (7B and 13B) in one part.
  constexpr int kFew = 4, kMany = 20;
  const auto run = [&](auto t, auto each) {
    using T = decltype(t);
    launch_early(rms_norm_kernel<T, each>, dims(x.shape[0]), dims(kThreads),
                 sizeof(float) * kThreads / 32, stream, static_cast<const float*>(x.data),
                 x.stride[0], static_cast<const float*>(w.data), x.shape[1], eps,
                 static_cast<T*>(out.data), out.stride[0]);
  };
  with_float(out.dtype, [&](auto t) {
    if (x.shape[1] <= kFew * kThreads) {
      run(t, std::integral_constant<int, kFew>{});
    } else {
      run(t, std::integral_constant<int, kMany>{});
    }
  });
}

void head_norm(const TensorView& x, const TensorView& w, float eps, cudaStream_t stream) {
  with_half(x.dtype, [&](auto t) {
    using T = decltype(t);
    const auto heads = static_cast<int>(x.shape[1]), d = static_cast<int>(x.shape[2]);
    in_parts(x.shape[0], [&](std::int64_t first, std::int64_t rows) {
      launch(head_norm_kernel<T>, dims(ceil_div(heads, kHeads), rows), dims(kThreads), 0, stream,
             static_cast<T*>(x.data) + first * x.stride[0], x.stride[0], x.stride[1],
             static_cast<const float*>(w.data), heads, d, eps);
    });
  });
}

void set_bias(const float* bias, const TensorView& out, bool accumulate, cudaStream_t stream) {
  with_float(out.dtype, [&](auto t) {
    using T = decltype(t);
    in_parts(out.shape[0], [&](std::int64_t first, std::int64_t rows) {
      launch(set_bias_kernel<T>, grid_of(out.shape[1], rows), dims(kThreads), 0, stream, bias,
             out.shape[1], static_cast<T*>(out.data) + first * out.stride[0], out.stride[0],
             accumulate);
    });
  });
}

void swiglu(const TensorView& gate_up, const TensorView& out, cudaStream_t stream) {
  with_half(out.dtype, [&](auto t) {
    using T = decltype(t);
    in_parts(out.shape[0], [&](std::int64_t first, std::int64_t rows) {
      launch(swiglu_kernel<T>, grid_of(ceil_div(out.shape[1], kSwigluEach), rows), dims(kThreads),
             0, stream, static_cast<const T*>(gate_up.data) + first * gate_up.stride[0],
             gate_up.stride[0], out.shape[1], static_cast<T*>(out.data) + first * out.stride[0],
             out.stride[0]);
    });
  });
}

void add_parts(const TensorView& parts, const TensorView& x, cudaStream_t stream) {
  in_parts(x.shape[0], [&](std::int64_t first, std::int64_t rows) {
    launch(add_parts_kernel, grid_of(x.shape[1], rows), dims(kThreads), 0, stream,
           static_cast<const float*>(parts.data) + first * x.shape[1], parts.stride[0],
           parts.shape[0], x.shape[1], x.as<float>() + first * x.stride[0], x.stride[0]);
  });
}

void convert(const TensorView& src, const TensorView& dst, cudaStream_t stream) {
  const auto run = [&](auto from, auto to) {
    using From = decltype(from);
    using To = decltype(to);
    in_parts(dst.shape[0], [&](std::int64_t first, std::int64_t rows) {
      launch(convert_kernel<From, To>, grid_of(dst.shape[1], rows), dims(kThreads), 0, stream,
             static_cast<const From*>(src.data) + first * src.stride[0], src.stride[0],
             dst.shape[1], static_cast<To*>(dst.data) + first * dst.stride[0], dst.stride[0]);
    });
  };
  if (src.dtype == dst.dtype) {
    if (size_of(src.dtype) == 2) return run(std::uint16_t{}, std::uint16_t{});
    return run(std::int32_t{}, std::int32_t{});
  }
  with_float(src.dtype, [&](auto from) {
    with_float(dst.dtype, [&](auto to) {
      if constexpr (!std::is_same_v<decltype(from), decltype(to)>) run(from, to);
    });
  });
}

}  // namespace triforce::kernels
