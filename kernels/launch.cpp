// What launches ask of a device, once: asking takes a microsecond, a step of a small drafter takes
// a hundred.
#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "triforce/format.h"

namespace triforce::kernels {
namespace {

// Shared memory a kernel may use without opting in.
constexpr std::size_t kSharedWithoutOptIn = 48 << 10;

struct OfKernel {
  std::optional<bool> can_begin_early;
  std::size_t shared_bytes = kSharedWithoutOptIn;  // that its blocks may have
};
struct OfDevice {
  std::optional<int> compute_capability;
  std::optional<std::size_t> shared_bytes;
  std::unordered_map<const void*, OfKernel> kernels;
};

std::atomic<std::uint64_t> forgotten = 0;  // times

// What the calling thread knows of its device.
OfDevice& of_device() {
  struct Known {
    std::uint64_t forgotten = 0;
    std::unordered_map<int, OfDevice> devices;
  };
  thread_local Known known;
  if (const std::uint64_t now = forgotten.load(); known.forgotten != now) known = {now, {}};
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) cudaGetLastError();
  return known.devices[device];
}

// As the source has it.
std::string name_of([[maybe_unused]] const void* kernel) {
  std::string linker_name = "a kernel";
#if CUDART_VERSION >= 12030
  const char* known = nullptr;
  if (cudaFuncGetName(&known, kernel) == cudaSuccess) linker_name = known;
#endif
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(linker_name.c_str(), nullptr, nullptr, &status), &std::free);
  return name == nullptr ? linker_name : name.get();
}

// Of the current device; nullopt: it does not say.
std::optional<int> attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&value, which, device) == cudaSuccess) {
    return value;
  }
  cudaGetLastError();
  return std::nullopt;
}

}  // namespace

void forget_devices() { ++forgotten; }

int compute_capability() {
  std::optional<int>& known = of_device().compute_capability;
  if (known) return *known;
  const std::optional<int> major = attribute(cudaDevAttrComputeCapabilityMajor),
                           minor = attribute(cudaDevAttrComputeCapabilityMinor);
  return major && minor ? known.emplace(10 * *major + *minor) : 0;
}

std::size_t max_shared_bytes() {
  std::optional<std::size_t>& known = of_device().shared_bytes;
  if (known) return *known;
  const std::optional<int> bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return bytes ? known.emplace(static_cast<std::size_t>(*bytes)) : kSharedWithoutOptIn;
}

namespace detail {

bool can_begin_early(const void* kernel) {
  constexpr int kPtx = 90, kCuda = 12030;
  std::optional<bool>& known = of_device().kernels[kernel].can_begin_early;
  if (known) return *known;
  cudaFuncAttributes attributes{};
  int driver = 0, runtime = 0;
  const bool answered = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess &&
                        cudaDriverGetVersion(&driver) == cudaSuccess &&
                        cudaRuntimeGetVersion(&runtime) == cudaSuccess;
  if (!answered) cudaGetLastError();
  return known.emplace(answered && attributes.ptxVersion >= kPtx &&
                       std::min(driver, runtime) >= kCuda);
}

cudaError_t allow_shared(const void* kernel, std::size_t bytes) {
  if (bytes <= kSharedWithoutOptIn) return cudaSuccess;
  std::size_t& allowed = of_device().kernels[kernel].shared_bytes;
  if (bytes <= allowed) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) allowed = bytes;
  return error;
}

void check_launch(cudaError_t error, const void* kernel, const cudaLaunchConfig_t& config) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // it is reported here
  // What stays is of work that was queued before.
  const bool stays = cudaGetLastError() != cudaSuccess;
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  throw Error(
      ExitCode::kDevice, "KernelLaunch",
      fmt::format("{}: launch of grid ({}, {}, {}), block ({}, {}, {}), {} bytes of shared memory "
                  "failed{}: {} ({})",
                  name_of(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                  config.dynamicSmemBytes, stays ? ", an earlier kernel having failed" : "",
                  cudaGetErrorName(error), cudaGetErrorString(error)));
}

}  // namespace detail

}  // namespace triforce::kernels
