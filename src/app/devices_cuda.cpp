// devices.h of a program that was built with CUDA.
#include <algorithm>
#include <array>

#include "app/devices.h"
#include "app/option_values.h"
#include "cuda/cuda_backend.h"
#include "cuda/runtime.h"

namespace triforce {
namespace {

// The emulated device is for tests that ask for it.
#ifdef TF_CUDA_EMULATED
constexpr bool kTakenByAuto = false;
#else
constexpr bool kTakenByAuto = true;
#endif

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

CudaSession open(const CudaDevice& device, std::optional<DType> dtype) {
  CudaOptions options;
  options.device = device.ordinal;
  options.dtype = dtype.value_or(options.dtype);
  std::unique_ptr<Backend> backend = make_cuda_backend(options);
  int driver = 0, runtime = 0;
  TF_CUDA(cudaDriverGetVersion(&driver));
  TF_CUDA(cudaRuntimeGetVersion(&runtime));
  std::array<char, 32> bus_id{};
  TF_CUDA(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device.ordinal));
  return {std::move(backend),
          {device.name, device.architecture, version(driver), version(runtime), bus_id.data()}};
}

}  // namespace

CudaDevices find_cuda_devices() {
  CudaDevices found;
  found.built = true;
  for (const cuda::DeviceInfo& d : cuda::list_devices(&found.reason)) {
    found.devices.push_back({d.ordinal, d.name, fmt::format("sm_{}{}", d.major, d.minor),
                             d.memory_bytes, d.free_bytes, d.built_for});
  }
  return found;
}

std::optional<CudaSession> open_cuda(const std::string& device, std::optional<DType> dtype) {
  if (device == "cpu" || (device == "auto" && !kTakenByAuto)) return std::nullopt;
  const CudaDevices found = find_cuda_devices();
  const auto first = [&](const auto& condition) {
    return std::find_if(found.devices.begin(), found.devices.end(), condition);
  };
  if (device == "auto") {
    const auto usable = first([](const CudaDevice& d) { return d.usable; });
    if (usable == found.devices.end()) return std::nullopt;
    return open(*usable, dtype);
  }
  const auto refuse = [&](const std::string& why) {
    throw Error(ExitCode::kDevice, "NoCuda", fmt::format("--device {}: {}", device, why));
  };
  if (found.devices.empty()) refuse(found.reason);
  const auto ordinal = device == "cuda" ? 0 : parse_integer(device.substr(5)).value_or(-1);
  const auto wanted = first([&](const CudaDevice& d) { return d.ordinal == ordinal; });
  if (wanted == found.devices.end()) {
    refuse(fmt::format("expected a device of 0 to {}", found.devices.size() - 1));
  }
  if (!wanted->usable) {
    refuse(fmt::format("device {} is an {} ({}), for which this program holds no code", ordinal,
                       wanted->name, wanted->architecture));
  }
  return open(*wanted, dtype);
}

}  // namespace triforce
