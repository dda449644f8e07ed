#include "cuda/runtime.h"

#include <algorithm>
#include <cstdlib>

#include "core/utf8.h"
#include "cuda/compute_cache.h"
#include "kernels/kernels.h"

namespace triforce::cuda {
namespace {

std::string note_on_compiling(const DeviceInfo& d) {
  std::string note = fmt::format(
      "cuda:{}: this program has no machine code for sm_{}{}, so the driver compiles its kernels "
      "when they are first used, for up to half a minute; ",
      d.ordinal, d.major, d.minor);
  const ComputeCache cache = compute_cache();
  return note + (cache.problem.empty()
                     ? fmt::format("{} keeps them for the next start", quote_text(cache.folder))
                     : fmt::format("every start does so again: {}", cache.problem));
}

}  // namespace

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

std::string version_text(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
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

int count_devices(std::string* reason) {
  // Kernels are loaded when they are first used, cuBLASLt's too: all of those take a gigabyte of
  // device memory. CUDA before 12.2 does not unless told.
  static_cast<void>(setenv("CUDA_MODULE_LOADING", "LAZY", 0));
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  static_cast<void>(cudaGetLastError());
  if (reason == nullptr) return 0;
  // The runtime reports no driver and one that is too old alike; the former has version 0.
  int driver = 0, runtime = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  if (driver == 0) {
    *reason = "no NVIDIA driver";
  } else if (status == cudaErrorInsufficientDriver) {
    // CUDA Toolkit release notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor
    // Version Compatibility".
    const char* const least = runtime >= 13000 ? "580" : "525";
    *reason = fmt::format(
        "the NVIDIA driver is for CUDA {}, this program needs one for CUDA {} ({} or newer)",
        version_text(driver), version_text(runtime), least);
    constexpr int kOldestToolkit = 12;
    if (driver / 1000 >= kOldestToolkit) {
      *reason += fmt::format("; a CUDA Toolkit {} makes a program for this driver", driver / 1000);
    }
  } else if (status == cudaSuccess || status == cudaErrorNoDevice) {
    *reason = "no CUDA device was found";
  } else {
    *reason = cudaGetErrorString(status);
  }
  return 0;
}

bool shares_host_memory(int device) {
  int integrated = 0;
  TF_CUDA(cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, device));
  return integrated != 0;
}

std::int64_t free_memory(int device, const HostAvailable& host) {
  std::size_t free_bytes = 0, total_bytes = 0;
  TF_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  std::optional<std::int64_t> available;
  if (host && shares_host_memory(device)) available = host();
  return available ? std::min(*available, static_cast<std::int64_t>(total_bytes))
                   : static_cast<std::int64_t>(free_bytes);
}

DeviceInfo inspect_device(int ordinal, const HostAvailable& host) {
  DeviceInfo d;
  d.ordinal = ordinal;
  try {
    cudaDeviceProp p{};
    TF_CUDA(cudaGetDeviceProperties(&p, ordinal));
    d.name = p.name;
    d.major = p.major;
    d.minor = p.minor;
    d.memory_bytes = static_cast<std::int64_t>(p.totalGlobalMem);
    TF_CUDA(cudaSetDevice(ordinal));
    d.free_bytes = free_memory(ordinal, host);
    switch (kernels::device_code()) {
      case kernels::DeviceCode::kNone:
        d.problem = fmt::format("this program holds no code for sm_{}{}", d.major, d.minor);
        break;
      case kernels::DeviceCode::kPtx:
        d.notes.push_back(note_on_compiling(d));
        break;
      case kernels::DeviceCode::kMachine:
        break;
    }
  } catch (const Error& e) {
    d.problem = e.what();
  }
  return d;
}

}  // namespace triforce::cuda
