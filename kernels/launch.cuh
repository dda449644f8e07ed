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

namespace detail {
// Whether the kernel's code for the current device has the instructions of programmatic dependent
// launch (PTX for 9.0 on), and driver and runtime record such launches (12.3 on).
bool can_begin_early(const void* kernel);
// Lets blocks of a kernel have so much shared memory.
cudaError_t allow_shared(const void* kernel, std::size_t bytes);
// Throws Error(kDevice, "KernelLaunch"), which names the kernel.
void check_launch(cudaError_t error, const void* kernel, const cudaLaunchConfig_t& config);

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t smem_bytes,
            cudaStream_t stream, bool early, Args&&... args) {
  const void* const address = reinterpret_cast<const void*>(kernel);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = smem_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  if (early && can_begin_early(address)) {
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  check_launch(allow_shared(address, smem_bytes), address, config);
  check_launch(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), address, config);
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
  detail::launch(kernel, grid, block, smem_bytes, stream, true, std::forward<Args>(args)...);
}

// Of the current device: 10 times the major number and the minor one; 0: it does not say.
int compute_capability();
// Shared memory that a block may have on the current device, opting in.
std::size_t max_shared_bytes();

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
