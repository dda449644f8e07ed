// Device memory for tests.
#pragma once
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "core/float16.h"
#include "cuda/cuda_allocator.h"
#include "cuda/runtime.h"
#include "triforce/tensor.h"

namespace triforce::cuda {

// Copies from ordinary host memory; when it returns, every stream finds the bytes on the device.
inline void to_device(void* to, const void* from, std::size_t bytes) {
  TF_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  // The copy returns when `from` has been read, and streams of ours do not wait for the default
  // one.
  TF_CUDA(cudaStreamSynchronize(nullptr));
}

// Contiguous device memory that holds `values`, and the way back.
template <class T>
class OnDevice {
 public:
  OnDevice(CudaAllocator& allocator, const std::vector<T>& values)
      : count_(values.size()), buffer_(allocator, bytes(), Place::kDevice, MemTag::kWorkspace) {
    to_device(buffer_.data(), values.data(), count_ * sizeof(T));
  }
  T* data() const { return static_cast<T*>(buffer_.data()); }
  std::vector<T> values() const {
    TF_CUDA(cudaDeviceSynchronize());
    std::vector<T> out(count_);
    TF_CUDA(cudaMemcpy(out.data(), buffer_.data(), count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }

 private:
  std::int64_t bytes() const { return static_cast<std::int64_t>(count_ * sizeof(T)); }
  std::size_t count_;
  Buffer buffer_;
};

// Multiples of 1/8 in [-2, 2]: exact in f16 and bf16, and so are short sums of their products.
inline std::vector<float> eighths(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> pick(-16, 16);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(pick(random)) / 8.0F;
  return v;
}

inline std::vector<float> normals(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

inline std::size_t count(std::int64_t n, std::int64_t m) { return static_cast<std::size_t>(n * m); }

inline std::uint16_t to_half(float x, DType t) {
  return t == DType::kF16 ? f32_to_f16(x) : f32_to_bf16(x);
}
inline float from_half(std::uint16_t x, DType t) {
  return t == DType::kF16 ? f16_to_f32(x) : bf16_to_f32(x);
}
inline std::vector<std::uint16_t> to_halves(const std::vector<float>& v, DType t) {
  std::vector<std::uint16_t> h(v.size());
  for (std::size_t i = 0; i < v.size(); ++i) h[i] = to_half(v[i], t);
  return h;
}
inline std::vector<float> from_halves(const std::vector<std::uint16_t>& v, DType t) {
  std::vector<float> f(v.size());
  for (std::size_t i = 0; i < v.size(); ++i) f[i] = from_half(v[i], t);
  return f;
}
// Largest relative error of rounding to t.
inline double unit_roundoff(DType t) {
  return t == DType::kF32 ? 0x1p-24 : t == DType::kF16 ? 0x1p-11 : 0x1p-8;
}

}  // namespace triforce::cuda
