#pragma once

namespace triforce {

// These are times of a machine's processors, in seconds since it started. Only differences are of
// interest.
struct LoadTimes {
  double busy = 0, idle = 0, stolen = 0;  // of all processors together; stolen: by other guests
  double own = 0;                         // of busy, by the processes of this run
  double throttled = 0;                   // that a quota of their control group stopped them
  int processors = 0;                     // that these may run on; 0: the system does not say
  int processes = 1;                      // of this run
};

}  // namespace triforce
