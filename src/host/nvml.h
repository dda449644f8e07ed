// NVML: NVIDIA's management library, which comes with the driver and is loaded at run time. This
// is the part of its C interface that is used (NVML API reference).
#pragma once
#include <string>

namespace triforce {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

class Nvml {
 public:
  using Device = void*;
  static constexpr int kSuccess = 0;  // nvmlReturn_t
  static constexpr int kSmClock = 1;  // nvmlClockType_t

  // Loads the library. Never throws: what is missing is nullptr below.
  explicit Nvml(const std::string& library);
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  // pci_bus_id: "0000:17:00.0". nullptr: there is no library, or it does not know the device.
  Device device(const std::string& pci_bus_id) const;

  // nullptr: the library has no such function.
  int (*clock)(Device, int, unsigned*) = nullptr;  // MHz
  int (*reasons)(Device, unsigned long long*) = nullptr;
  int (*link_generation)(Device, unsigned*) = nullptr;
  int (*link_width)(Device, unsigned*) = nullptr;
  int (*energy)(Device, unsigned long long*) = nullptr;  // mJ since the driver was loaded
  int (*power)(Device, unsigned*) = nullptr;             // mW

 private:
  template <class F>
  void find(F& function, const char* name);

  void* handle_;
  bool begun_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*by_bus_id_)(const char*, Device*) = nullptr;
};

}  // namespace triforce
