// These functions say what this machine offers (processor, threads, memory). They also give the
// facts about it and the build that every result names.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "triforce/report.h"

namespace triforce {

// Processors this process may run on, no more than its control group's quota is worth; 1 at least.
int available_threads();

// Names of the CPU backend's instruction levels, of every architecture; `usable`: only those this
// processor has, in rising order.
std::vector<std::string> isa_levels(bool usable);

struct MemoryState {
  std::int64_t total_bytes = 0;
  // This process may still take so many bytes: MemAvailable, and no more than its control group
  // leaves.
  std::int64_t available_bytes = 0;
};
// nullopt where the system does not say (no /proc/meminfo).
std::optional<MemoryState> memory_state();
std::int64_t peak_process_bytes();  // largest resident set so far
std::string iso_time_now();         // UTC, "2026-01-31T12:00:00Z"
std::string program_version();

// Build, host, argv and start time. The caller adds what only the backend knows: backend, isa,
// threads, and measured_read_gbs.
ResultContext make_context(const std::vector<std::string>& argv);

}  // namespace triforce
