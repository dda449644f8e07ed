// RMSNorm of rows by blocks of 256 threads: one order of summation for all kernels that do it.
#pragma once
#include "kernels/element.cuh"
#include "kernels/reduce.cuh"

namespace triforce::kernels {

constexpr int kNormThreads = 256;

// A thread's elements begin, begin + kNormThreads, ... of a row, kEach at most: all on their way at
// once; zeros past the row's end.
template <int kEach>
TF_DEVICE void load_elements(const float* row, std::int64_t begin, std::int64_t width,
                             float (&into)[kEach]) {
  TF_UNROLL
  for (int j = 0; j < kEach; ++j) {
    const std::int64_t i = begin + j * kNormThreads;
    into[j] = i < width ? row[i] : 0.0F;
  }
}

// The squares of a thread's elements of a row, one after another.
template <int kEach>
TF_DEVICE float add_squares(const float (&values)[kEach], float sum) {
  TF_UNROLL
  for (int j = 0; j < kEach; ++j) sum = fmaf(values[j], values[j], sum);
  return sum;
}

// What a row's elements are multiplied by, of all threads' sums of squares; scratch: a float a
// warp.
TF_DEVICE float norm_scale(float sum, std::int64_t width, float eps, float* scratch) {
  const float mean = block_reduce(sum, scratch, Add{}) / static_cast<float>(width);
  return 1.0F / sqrtf(mean + eps);
}

template <class Out>
TF_DEVICE Out normed(float value, float scale, float weight) {
  return from_float<Out>(value * scale * weight);
}

}  // namespace triforce::kernels
