// Facts about the build and the host that every result names.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "triforce/report.h"

namespace triforce {

std::int64_t peak_process_bytes();  // largest resident set so far
std::string os_name();              // "Linux 6.1.0 x86_64"
std::string iso_time_now();         // UTC, "2026-01-31T12:00:00Z"

// Build, host, argv and start time. The caller adds what only the backend knows: backend, isa,
// threads, and measured_read_gbs.
ResultContext make_context(const std::vector<std::string>& argv);

}  // namespace triforce
