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

// Contiguous device memory that holds `values`, and the way back.
template <class T>
class OnDevice {
 public:
  OnDevice(CudaAllocator& allocator, const std::vector<T>& values)
      : count_(values.size()), buffer_(allocator, bytes(), Place::kDevice, MemTag::kWorkspace) {
    TF_CUDA(cudaMemcpy(buffer_.data(), values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
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

}  // namespace triforce::cuda
