// A GPU's clocks and link while a run goes on, from NVML.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/nvml.h"
#include "triforce/report.h"

namespace triforce {

// The one reason for lower clocks that full load gives by itself and that is no reason against
// comparing times.
inline constexpr const char* kPowerCap = "sw_power_cap";

// An observation is what was seen so far. nullopt: the library or the driver does not say.
struct GpuObservation {
  std::optional<ClockRange> clocks;  // of the multiprocessors, MHz
  // Why clocks were lowered, NVML's clock event reasons in snake case, each once: kPowerCap,
  // "hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown".
  std::optional<std::vector<std::string>> throttle_reasons;
  std::optional<std::string> pcie;  // "gen5 x16", the fastest that was seen: idle links slow down
};

// Looks at the GPU ten times a second from construction to destruction, in a thread of its own.
class GpuMonitor {
 public:
  // pci_bus_id: "0000:17:00.0". Never throws for what is missing; observed() is then empty.
  explicit GpuMonitor(const std::string& pci_bus_id, const std::string& library = kNvmlLibrary);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  GpuObservation observed() const;

 private:
  class Sampler;
  std::unique_ptr<Sampler> sampler_;  // null: there is no NVML, or it does not know the GPU
};

}  // namespace triforce
