// How long a sweep will take here, before any of it is measured.
#pragma once
#include <string>

#include "app/sweep_cases.h"

namespace triforce {

// One line: "about 12 minutes on this machine: ..." and from what that follows, or why there is no
// estimate. Measures the bandwidth of the device for that, in a fraction of a second; never throws
// for what a sweep itself would say.
std::string estimate_of(const CommandLine& line, const ShardOfCases& mine);

// "40 s", "12 min", "3 h 20 min": with as many digits as an estimate has.
std::string about_time(double seconds);

}  // namespace triforce
