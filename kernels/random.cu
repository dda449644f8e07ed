#include "kernels/kernels.h"

#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 256;

// A thread makes the four elements of one group, those of them that lie in [first, end).
__global__ void random_kernel(float* out, std::int64_t first, std::int64_t end, DrawKey key,
                              double scale) {
  const std::int64_t group = first / 4 + std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (group * 4 >= end) return;
  double normals[4];
  philox_normals(key, static_cast<std::uint32_t>(group), normals);
  for (int i = 0; i < 4; ++i) {
    const std::int64_t element = group * 4 + i;
    if (element >= first && element < end) {
      out[element - first] = static_cast<float>(normals[i] * scale);
    }
  }
}

}  // namespace

void random_values(const TensorView& out, const DrawKey& key, std::int64_t first, double scale,
                   cudaStream_t stream) {
  const std::int64_t end = first + out.numel(), groups = (end + 3) / 4 - first / 4;
  launch(random_kernel, dims(ceil_div(groups, kThreads)), dims(kThreads), 0, stream,
         static_cast<float*>(out.data), first, end, key, scale);
}

}  // namespace triforce::kernels
