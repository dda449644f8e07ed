// What this machine offers: processor, threads, memory.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace triforce {

std::string cpu_model_name();  // "AMD EPYC ..."; "unknown" where the system does not say
int available_threads();       // processors this process may run on

// Names of the CPU backend's instruction levels in rising order; `usable`: only those this
// processor has.
std::vector<std::string> isa_levels(bool usable);

struct MemoryState {
  std::int64_t total_bytes = 0;
  // What this process may still take: MemAvailable, and no more than its control group has left.
  std::int64_t available_bytes = 0;
};
// nullopt where the system does not say (no /proc/meminfo).
std::optional<MemoryState> memory_state();

}  // namespace triforce
