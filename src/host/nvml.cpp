#include "host/nvml.h"

#include <dlfcn.h>

namespace triforce {

template <class F>
void Nvml::find(F& function, const char* name) {
  if (handle_ != nullptr) function = reinterpret_cast<F>(dlsym(handle_, name));
}

Nvml::Nvml(const std::string& library) : handle_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  find(init_, "nvmlInit_v2");
  find(shutdown_, "nvmlShutdown");
  find(by_bus_id_, "nvmlDeviceGetHandleByPciBusId_v2");
  find(clock, "nvmlDeviceGetClockInfo");
  find(link_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
  find(link_width, "nvmlDeviceGetCurrPcieLinkWidth");
  find(reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  // Its name before driver 535.
  if (reasons == nullptr) find(reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  find(energy, "nvmlDeviceGetTotalEnergyConsumption");
  find(power, "nvmlDeviceGetPowerUsage");
  begun_ = init_ != nullptr && init_() == kSuccess;
}

Nvml::~Nvml() {
  if (begun_ && shutdown_ != nullptr) shutdown_();
  if (handle_ != nullptr) dlclose(handle_);
}

Nvml::Device Nvml::device(const std::string& pci_bus_id) const {
  Device found = nullptr;
  if (!begun_ || by_bus_id_ == nullptr || by_bus_id_(pci_bus_id.c_str(), &found) != kSuccess) {
    return nullptr;
  }
  return found;
}

}  // namespace triforce
