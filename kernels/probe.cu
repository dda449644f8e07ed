#include "kernels/kernels.h"

#include "kernels/launch.cuh"
#include "kernels/platform.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kInFlight = 8;  // 16-byte loads of a thread under way at a time

__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* data, std::int64_t words, std::uint32_t* sink) {
  std::uint32_t sum = 0;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < words; i += stride * kInFlight) {
    uint4 v[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const std::int64_t at = i + j * stride;
      v[j] = at < words ? data[at] : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  // Never equal in practice; the compiler cannot know.
  if (sum == 0x9e3779b9U) *sink = sum;
}

}  // namespace

DeviceCode device_code() {
  cudaFuncAttributes attributes{};
  const cudaError_t status =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(read_kernel));
  static_cast<void>(cudaGetLastError());
  if (status != cudaSuccess) return DeviceCode::kNone;
  // Machine code is built from PTX of its own architecture; what the driver compiles is newer.
  return attributes.binaryVersion > attributes.ptxVersion ? DeviceCode::kPtx : DeviceCode::kMachine;
}

void read_all(const void* data, std::int64_t bytes, int blocks, std::uint32_t* sink,
              cudaStream_t stream) {
  launch(read_kernel, dims(blocks), dims(kThreads), 0, stream, static_cast<const uint4*>(data),
         bytes / 16, sink);
}

}  // namespace triforce::kernels
