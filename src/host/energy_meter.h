// The meter reads what the machine's own counters say of energy: RAPL of processors and memory
// through Linux's powercap folder, NVML of the GPU.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "host/nvml.h"
#include "triforce/energy.h"

namespace triforce {

inline constexpr const char* kPowercapFolder = "/sys/class/powercap";

// An EnergySource says where counters are. Tests have their own.
struct EnergySource {
  std::string powercap = kPowercapFolder;  // folders intel-rapl:N and intel-rapl:N:M, AMD's too
  std::string pci_bus_id;                  // of the GPU that computes; empty: none does
  std::string nvml = kNvmlLibrary;
  // RAPL's counters wrap around, at 100 W after ten minutes: they are looked at so often.
  std::chrono::milliseconds wrap_period = std::chrono::seconds(10);
  // Where NVML has power and no energy, its samples are so far apart.
  std::chrono::milliseconds power_period = std::chrono::milliseconds(100);
};

// Counts from its construction on. A domain that cannot be read, or could not be at some time
// since, is nullopt. Never throws for what is missing.
class EnergyMeter {
 public:
  explicit EnergyMeter(const EnergySource& source);
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  ByDomain joules() const;
  // How each domain is read, in the order of kDomainNames; without idle_watts.
  std::vector<EnergySensor> sensors() const;

 private:
  class Counters;
  std::unique_ptr<Counters> counters_;
};

}  // namespace triforce
