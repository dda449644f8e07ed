// The one way to launch a kernel.
#pragma once
#include <cstddef>
#include <utility>

#include "kernels/platform.cuh"
#include "triforce/error.h"

namespace triforce::kernels {

// Shared memory a kernel may use without opting in.
constexpr std::size_t kSharedWithoutOptIn = 48 << 10;

namespace detail {
inline void check_launch(cudaError_t error, dim3 grid, dim3 block, std::size_t smem_bytes) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // it is reported here
  throw Error(ExitCode::kDevice, "KernelLaunch",
              fmt::format("launch of grid ({}, {}, {}), block ({}, {}, {}), {} bytes of shared "
                          "memory failed: {} ({})",
                          grid.x, grid.y, grid.z, block.x, block.y, block.z, smem_bytes,
                          cudaGetErrorName(error), cudaGetErrorString(error)));
}
}  // namespace detail

// Runs kernel(args...) in `stream`; smem_bytes of dynamic shared memory per block. Throws
// Error(kDevice) when the launch is refused. Errors of the kernel itself come with a later call.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t smem_bytes,
            cudaStream_t stream, Args&&... args) {
  if (smem_bytes > kSharedWithoutOptIn) {
    detail::check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(smem_bytes)),
                         grid, block, smem_bytes);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = smem_bytes;
  config.stream = stream;
  detail::check_launch(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), grid,
                       block, smem_bytes);
}

}  // namespace triforce::kernels
