// The made-up device, its errors' names, and the emulator's own controls.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "api.h"
#include "block.h"
#include "trap.h"

using namespace tf_emulator::detail;

namespace {

struct ErrorName {
  cudaError_t error;
  const char* name;
  const char* text;
};
#define TF_EMULATOR_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorName kErrors[] = {
    TF_EMULATOR_ERROR(cudaSuccess, "no error"),
    TF_EMULATOR_ERROR(cudaErrorInvalidValue, "invalid argument"),
    TF_EMULATOR_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    TF_EMULATOR_ERROR(cudaErrorInitializationError, "initialization error"),
    TF_EMULATOR_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    TF_EMULATOR_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    TF_EMULATOR_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    TF_EMULATOR_ERROR(cudaErrorInsufficientDriver,
                      "CUDA driver version is insufficient for CUDA runtime version"),
    TF_EMULATOR_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    TF_EMULATOR_ERROR(cudaErrorDevicesUnavailable,
                      "CUDA-capable device(s) is/are busy or unavailable"),
    TF_EMULATOR_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    TF_EMULATOR_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    TF_EMULATOR_ERROR(cudaErrorNoKernelImageForDevice,
                      "no kernel image is available for execution on the device"),
    TF_EMULATOR_ERROR(cudaErrorOperatingSystem,
                      "OS call failed or operation not supported on this OS"),
    TF_EMULATOR_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TF_EMULATOR_ERROR(cudaErrorNotReady, "device not ready"),
    TF_EMULATOR_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    TF_EMULATOR_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    TF_EMULATOR_ERROR(cudaErrorHostMemoryAlreadyRegistered,
                      "part or all of the requested memory range is already mapped"),
    TF_EMULATOR_ERROR(cudaErrorHostMemoryNotRegistered,
                      "pointer does not correspond to a registered memory region"),
    TF_EMULATOR_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    TF_EMULATOR_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    TF_EMULATOR_ERROR(cudaErrorNotSupported, "operation not supported"),
    TF_EMULATOR_ERROR(cudaErrorStreamCaptureUnsupported,
                      "operation not permitted when stream is capturing"),
    TF_EMULATOR_ERROR(cudaErrorStreamCaptureInvalidated,
                      "operation failed due to a previous error during capture"),
    TF_EMULATOR_ERROR(cudaErrorStreamCaptureMerge,
                      "operation would result in a merge of separate capture sequences"),
    TF_EMULATOR_ERROR(cudaErrorStreamCaptureUnmatched,
                      "capture was not ended in the same stream as it began"),
    TF_EMULATOR_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    TF_EMULATOR_ERROR(cudaErrorStreamCaptureIsolation,
                      "dependency created on uncaptured work in another stream"),
    TF_EMULATOR_ERROR(
        cudaErrorStreamCaptureImplicit,
        "operation would make the legacy stream depend on a capturing blocking stream"),
    TF_EMULATOR_ERROR(cudaErrorCapturedEvent,
                      "operation not permitted on an event last recorded in a capturing stream"),
    TF_EMULATOR_ERROR(cudaErrorStreamCaptureWrongThread,
                      "attempt to terminate a thread-local capture sequence from another thread"),
};
#undef TF_EMULATOR_ERROR

const ErrorName* find(cudaError_t error) {
  for (const ErrorName& entry : kErrors) {
    if (entry.error == error) return &entry;
  }
  return nullptr;
}

}  // namespace

cudaError_t cudaGetLastError() {
  const Call call;
  return call->take_last_error();
}
cudaError_t cudaPeekAtLastError() {
  const Call call;
  return call->peek_last_error();
}
const char* cudaGetErrorName(cudaError_t error) {
  const ErrorName* const entry = find(error);
  return entry == nullptr ? "cudaErrorUnknown" : entry->name;
}
const char* cudaGetErrorString(cudaError_t error) {
  const Call call;
  // What trapped is worth more than the general text.
  if (error != cudaSuccess && error == call->sticky) return call->trap.message.c_str();
  const ErrorName* const entry = find(error);
  return entry == nullptr ? "unknown error" : entry->text;
}

cudaError_t cudaGetDeviceCount(int* count) {
  const Call call;
  *count = 0;
  if (!call->has_driver()) return call->fail(cudaErrorInsufficientDriver);
  if (call->limits.devices < 1) return call->fail(cudaErrorNoDevice);
  *count = call->limits.devices;
  return cudaSuccess;
}

namespace {
thread_local int current_device = 0;
}

cudaError_t cudaSetDevice(int device) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (device < 0 || device >= call->limits.devices) return call->fail(cudaErrorInvalidDevice);
  if (device == call->limits.busy_device) return call->fail(cudaErrorDevicesUnavailable);
  call->counters.contexts |= std::uint64_t{1} << static_cast<unsigned>(device);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (device < 0 || device >= call->limits.devices) return call->fail(cudaErrorInvalidDevice);
  *prop = {};
  std::snprintf(prop->name, sizeof(prop->name), "Emulated CUDA device");
  prop->uuid.bytes[15] = static_cast<char>(device + 1);
  prop->totalGlobalMem = call->limits.memory_bytes;
  prop->sharedMemPerBlock = 48 << 10;
  prop->regsPerBlock = 65536;
  prop->warpSize = 32;
  prop->maxThreadsPerBlock = 1024;
  prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
  prop->maxThreadsDim[2] = 64;
  prop->maxGridSize[0] = 0x7fffffff;
  prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
  prop->major = call->limits.architecture / 10;
  prop->minor = call->limits.architecture % 10;
  prop->multiProcessorCount = call->limits.multiprocessors;
  prop->integrated = call->limits.integrated ? 1 : 0;
  prop->canMapHostMemory = 1;
  prop->pciBusID = device + 1;
  prop->asyncEngineCount = 2;
  prop->unifiedAddressing = 1;
  prop->memoryBusWidth = 64;
  prop->l2CacheSize = 4 << 20;
  prop->maxThreadsPerMultiProcessor = 2048;
  prop->sharedMemPerMultiprocessor = call->limits.shared_optin_bytes + 1024;
  prop->sharedMemPerBlockOptin = call->limits.shared_optin_bytes;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  const cudaError_t error = cudaGetDeviceProperties(&p, device);
  if (error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(p.sharedMemPerBlock);
      break;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = p.regsPerBlock;
      break;
    case cudaDevAttrClockRate:
      *value = 1'000'000;
      break;  // kHz
    case cudaDevAttrMemoryClockRate:
      *value = 1'000'000;
      break;  // kHz
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrIntegrated:
      *value = p.integrated;
      break;
    case cudaDevAttrEccEnabled:
      *value = p.ECCEnabled;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = p.memoryBusWidth;
      break;
    case cudaDevAttrL2CacheSize:
      *value = p.l2CacheSize;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = p.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrAsyncEngineCount:
      *value = p.asyncEngineCount;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(p.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
      *value = Call()->limits.registered_pointers ? 1 : 0;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
    default:
      return Call()->fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (device < 0 || device >= call->limits.devices) return call->fail(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  const Call call;
  *version = call->limits.driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  const Call call;
  *version = call->limits.runtime_version;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  const Call call;
  TF_EMULATOR_TRY(call->ready_outside_capture());
  call->finish_all();
  return call->ready();
}

cudaError_t cudaDeviceReset() {
  tf_emulator::reset();
  return cudaSuccess;
}

namespace tf_emulator {

TrapReport last_trap() {
  const Call call;
  return call->trap;
}
Bus bus() {
  const Call call;
  return memory().bus;
}
void set_order(Order order) { Call()->order = order; }
void set_blocks(const Blocks& blocks) { Call()->blocks = blocks; }
void set_limits(const Limits& limits) { Call()->limits = limits; }
Limits limits() { return Call()->limits; }
void reset() {
  const Call call;
  call->drop_all();
  call->limits = {};
  memory().device.release_all();
  memory().pinned.release_all();
  memory().registered.remove_all();
}
Counters counters() {
  const Call call;
  return call->counters;
}
std::vector<LaunchedKernel> launched_kernels() {
  const Call call;
  std::vector<LaunchedKernel> all;
  for (const auto& [function, launched] : call->launched) {
    all.push_back(launched);
    all.back().name = function_name(function);
  }
  std::sort(all.begin(), all.end(),
            [](const LaunchedKernel& a, const LaunchedKernel& b) { return a.name < b.name; });
  return all;
}
std::size_t device_bytes() {
  const Call call;
  return memory().device.live_bytes();
}
std::size_t pinned_bytes() {
  const Call call;
  return memory().pinned.live_bytes();
}
std::size_t registered_bytes() {
  const Call call;
  return memory().registered.bytes();
}

}  // namespace tf_emulator
