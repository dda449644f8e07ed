#include <algorithm>

#include "app/devices.h"
#include "app/option_values.h"
#include "cuda/cuda_backend.h"
#include "cuda/runtime.h"

namespace triforce {

CudaDevices find_cuda_devices() {
  CudaDevices found;
  found.built = true;
  for (const cuda::DeviceInfo& d : cuda::list_devices(&found.reason)) {
    found.devices.push_back({d.ordinal, d.name, fmt::format("sm_{}{}", d.major, d.minor),
                             d.memory_bytes, d.free_bytes, d.built_for});
  }
  return found;
}

std::unique_ptr<Backend> open_cuda_backend(const std::string& device) {
  if (device == "cpu") return nullptr;
  const CudaDevices found = find_cuda_devices();
  const auto refuse = [&](const std::string& why) {
    throw Error(ExitCode::kDevice, "NoCuda", fmt::format("--device {}: {}", device, why));
  };
  const auto unusable = [](const CudaDevice& d) {
    return fmt::format("device {} is an {} ({}), for which this program holds no code", d.ordinal,
                       d.name, d.architecture);
  };
  if (device == "auto") {
    const auto first = std::find_if(found.devices.begin(), found.devices.end(),
                                    [](const CudaDevice& d) { return d.usable; });
    return first == found.devices.end() ? nullptr : make_cuda_backend({first->ordinal});
  }
  if (found.devices.empty()) refuse(found.reason);
  const auto ordinal = device == "cuda" ? 0 : parse_integer(device.substr(5)).value_or(-1);
  const auto wanted = std::find_if(found.devices.begin(), found.devices.end(),
                                   [&](const CudaDevice& d) { return d.ordinal == ordinal; });
  if (wanted == found.devices.end()) {
    refuse(fmt::format("expected a device of 0 to {}", found.devices.size() - 1));
  }
  if (!wanted->usable) refuse(unusable(*wanted));
  return make_cuda_backend({wanted->ordinal});
}

}  // namespace triforce
