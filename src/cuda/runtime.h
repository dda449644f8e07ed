// Owners of the CUDA runtime's objects, and its errors as exceptions.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "triforce/error.h"

namespace triforce::cuda {

// Throws Error(kDevice, "Cuda") that names the call and CUDA's own words; Error(kResources,
// "OutOfMemory") if the device's memory is the reason.
void check(cudaError_t status, const char* call);
#define TF_CUDA(call) ::triforce::cuda::check((call), #call)

// An owner of a CUDA handle; `kDestroy` gives it back and its status is ignored.
template <auto kDestroy>
struct Destroy {
  void operator()(auto* handle) const { static_cast<void>(kDestroy(handle)); }
};
template <class T, auto kDestroy>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, Destroy<kDestroy>>;

using Stream = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;
using Graph = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

// "13.0" of 13000, as the runtime and the driver number themselves.
std::string version_text(int number);

Stream make_stream();                // does not wait for the default stream
EventHandle make_event(bool timed);  // timed: usable in cudaEventElapsedTime

// What the host has available for this process, bytes; nullopt: it does not say.
using HostAvailable = std::function<std::optional<std::int64_t>()>;

// Whether a device has no memory but the host's (DGX Spark, Jetson). That its tables of pages are
// the host's (cudaDevAttrPageableMemoryAccessUsesHostPageTables) says less: GH200 and GB200 have
// them and HBM of their own, which cudaMemGetInfo counts and plans have to keep to.
bool shares_host_memory(int device);
// Bytes that the current device has free. Where its memory is the host's, cudaMemGetInfo counts the
// page cache as taken, which the system gives up when it is asked to; there it is what the host has
// available, as far as the device reaches.
std::int64_t free_memory(int device, const HostAvailable& host);

// What list-devices prints.
struct DeviceInfo {
  int ordinal = 0;
  std::string name;  // "NVIDIA H200"
  int major = 0, minor = 0;
  std::int64_t memory_bytes = 0;
  std::optional<std::int64_t> free_bytes;  // none: the device cannot be used
  std::string problem;                     // why it cannot be used; empty: it can
  std::vector<std::string> notes;          // what who uses it should know, one line each
};

// The number of devices of this machine; none of them is touched. If it is 0, `reason`, if given,
// says why in one line.
int count_devices(std::string* reason = nullptr);
// Looks at one of them, 0 <= ordinal < count_devices(), which becomes the current device if it can
// be used: a context on this device, and on no other. What is wrong with the device is no
// exception but its `problem`. host: for free_memory().
DeviceInfo inspect_device(int ordinal, const HostAvailable& host = {});

}  // namespace triforce::cuda
