// The one way to launch a kernel.
#pragma once
#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "core/rounding.h"
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

namespace detail {
// Whether the kernel's code for the current device has the instructions of programmatic dependent
// launch (PTX for 9.0 on) and the driver records such launches (12.3 on).
template <class... Params>
bool can_begin_early(void (*kernel)(Params...)) {
  constexpr int kPtx = 90, kDriver = 12030;
  cudaFuncAttributes attributes{};
  int driver = 0;
  const bool known = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess &&
                     cudaDriverGetVersion(&driver) == cudaSuccess;
  if (!known) cudaGetLastError();
  return known && attributes.ptxVersion >= kPtx && driver >= kDriver;
}

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t smem_bytes,
            cudaStream_t stream, bool early, Args&&... args) {
  if (smem_bytes > kSharedWithoutOptIn) {
    check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(smem_bytes)),
                 grid, block, smem_bytes);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = smem_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  if (early) {
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  check_launch(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), grid, block,
               smem_bytes);
}
}  // namespace detail

// Runs kernel(args...) in `stream`; smem_bytes of dynamic shared memory per block. Throws
// Error(kDevice) when the launch is refused. Errors of the kernel itself come with a later call.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t smem_bytes,
            cudaStream_t stream, Args&&... args) {
  detail::launch(kernel, grid, block, smem_bytes, stream, false, std::forward<Args>(args)...);
}

// The same for a kernel that may begin, where the device can (from sm_90 on), while the kernel
// before it in its stream still runs. Recordings keep that.
//
// The law of such kernels. A kernel may begin once all blocks of the one before it have let it
// (ptx::let_next_grid_start) or ended, and neither orders memory; a thread's wait
// (ptx::wait_for_earlier_grids) ends when the kernel before has ended and what it wrote can be seen
// (PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch and
// Synchronization"). So
// 1. every thread waits before it ends. Otherwise its kernel may end before the one that it did not
//    wait for, and who waits for its kernel alone goes on while that one still writes;
// 2. before its wait a thread writes no device memory, does no atomic operation there, and reads
//    only what no kernel writes that may still run: weights, which have their place long before a
//    pass (CudaBackend waits after it has written some);
// 3. a thread lets the next kernel start only after its wait: then two kernels of a stream at most
//    are under way, and what one fetches ahead takes registers and shared memory from one other.
// tests/cuda/machine_code checks it in the machine code for sm_90, which the compiler has reordered
// (rule "early"), and the emulator in what threads do (Trap::kEarly).
template <class... Params, class... Args>
void launch_early(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t smem_bytes,
                  cudaStream_t stream, Args&&... args) {
  detail::launch(kernel, grid, block, smem_bytes, stream, detail::can_begin_early(kernel),
                 std::forward<Args>(args)...);
}

// Shared memory that a block may have on the current device, opting in.
inline std::size_t max_shared_bytes() {
  int device = 0, bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
          cudaSuccess) {
    cudaGetLastError();
    return kSharedWithoutOptIn;
  }
  return static_cast<std::size_t>(bytes);
}

// A grid or a block; sizes that a device takes: below 2^31 in x, 2^16 in y and z.
inline dim3 dims(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) {
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
}

// body(first, count) for parts of [0, rows) that fit a grid's y.
template <class Body>
void in_parts(std::int64_t rows, const Body& body) {
  constexpr std::int64_t kMaxRows = 65535;
  for (std::int64_t first = 0; first < rows; first += kMaxRows) {
    body(first, std::min(kMaxRows, rows - first));
  }
}

// body(std::integral_constant<int, k>{}) for k = n, or the nearest of 1 to kMax.
template <int kMax, class Body>
void with_count(std::int64_t n, const Body& body) {
  if constexpr (kMax > 1) {
    if (n < kMax) return with_count<kMax - 1>(n, body);
  }
  body(std::integral_constant<int, kMax>{});
}

}  // namespace triforce::kernels
