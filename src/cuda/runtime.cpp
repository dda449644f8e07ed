#include "cuda/runtime.h"

#include <array>
#include <memory>

#include "kernels/probe.h"

namespace triforce::cuda {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  // A failure that is not sticky would be reported once more by the next launch.
  static_cast<void>(cudaGetLastError());
  if (status == cudaErrorMemoryAllocation) {
    throw_resources("OutOfMemory", "{}: the device has no memory left", call);
  }
  throw Error(
      ExitCode::kDevice, "Cuda",
      fmt::format("{}: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status)));
}

Stream make_stream() {
  cudaStream_t stream = nullptr;
  TF_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

EventHandle make_event(bool timed) {
  cudaEvent_t event = nullptr;
  TF_CUDA(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  return EventHandle(event);
}

std::vector<DeviceInfo> list_devices(std::string* reason) {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    if (reason != nullptr) *reason = cudaGetErrorString(status);
    return {};
  }
  if (count == 0 && reason != nullptr) *reason = "no CUDA device was found";
  int before = 0;
  if (count > 0) TF_CUDA(cudaGetDevice(&before));
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p{};
    TF_CUDA(cudaGetDeviceProperties(&p, i));
    DeviceInfo d;
    d.ordinal = i;
    d.name = p.name;
    d.major = p.major;
    d.minor = p.minor;
    d.multiprocessors = p.multiProcessorCount;
    d.memory_bytes = static_cast<std::int64_t>(p.totalGlobalMem);
    d.shared_bytes_per_block = static_cast<std::int64_t>(p.sharedMemPerBlockOptin);
    TF_CUDA(cudaSetDevice(i));
    std::size_t free_bytes = 0, total_bytes = 0;
    TF_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    d.free_bytes = static_cast<std::int64_t>(free_bytes);
    d.built_for = kernels::runs_here();
    devices.push_back(std::move(d));
  }
  if (count > 0) TF_CUDA(cudaSetDevice(before));
  return devices;
}

}  // namespace triforce::cuda
