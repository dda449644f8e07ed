#pragma once

namespace triforce {

// How long the processors of a machine did what, in seconds since it started; of interest are
// differences.
struct LoadTimes {
  double busy = 0, idle = 0, stolen = 0;  // of all processors together; stolen: by other guests
  double own = 0;                         // of busy, by the processes of this run
  double throttled = 0;                   // that a quota of their control group stopped them
  int processors = 0;                     // that these may run on; 0: the system does not say
  int processes = 1;                      // of this run
};

}  // namespace triforce
