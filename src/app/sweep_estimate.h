// How long a sweep will take, here or on --machine, before any of it is measured.
#pragma once
#include <string>

#include "app/sweep_cases.h"

namespace triforce {

// Returns one line: "about 12 minutes on this machine: ..." and from what that follows, or why
// there is no estimate. For this machine it measures the bandwidth of the device, in a fraction of
// a second. Throws as find_machines(), and never for what a sweep itself would say.
std::string estimate_of(const CommandLine& line, const SliceOfCases& mine);

// "40 s", "12 min", "3 h 20 min": with as many digits as an estimate has.
std::string about_time(double seconds);

}  // namespace triforce
