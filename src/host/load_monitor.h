// What else kept the machine busy while this process measured, from Linux's /proc.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "triforce/report.h"

namespace triforce {

// Watches from its construction on; costs nothing meanwhile.
class LoadMonitor {
 public:
  // proc_stat: where Linux counts the time of each processor (proc_stat(5)).
  explicit LoadMonitor(std::string proc_stat = "/proc/stat");
  // nullopt: the system does not say, or too little time has passed to tell.
  std::optional<MachineLoad> observed() const;

 private:
  // Seconds since the system started.
  struct Times {
    double busy = 0, idle = 0, stolen = 0, own = 0;
    int processors = 0;
  };
  std::optional<Times> now() const;

  std::string proc_stat_;
  std::optional<Times> begin_;
};

// Why times that were measured under such a load do not tell how fast this machine is with
// `threads` threads, one line each; empty: they do. Up to a tenth of what the threads need is noise
// that every system has, a fiftieth where a hypervisor takes it.
std::vector<std::string> disturbances(const MachineLoad& load, int threads);

}  // namespace triforce
