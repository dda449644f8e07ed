#include "host/load_monitor.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

namespace triforce {
namespace {

// The kernel counts in ticks, of which a hundred make a second nearly everywhere.
constexpr double kLeastTicks = 20;
constexpr double kUsualShare = 0.1, kUsualStolenShare = 0.02;

double ticks_per_second() {
  const long ticks = sysconf(_SC_CLK_TCK);
  return ticks > 0 ? static_cast<double>(ticks) : 100.0;
}

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
}

// N of a line "cpuN ...", -1 of any other.
int processor_of(const std::string& name) {
  int n = -1;
  if (name.size() <= 3 || !name.starts_with("cpu")) return -1;
  const auto [end, error] = std::from_chars(name.data() + 3, name.data() + name.size(), n);
  return error == std::errc() && end == name.data() + name.size() ? n : -1;
}

}  // namespace

LoadMonitor::LoadMonitor(std::string proc_stat) : proc_stat_(std::move(proc_stat)), begin_(now()) {}

std::optional<LoadMonitor::Times> LoadMonitor::now() const {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  rusage usage{};
  if (sched_getaffinity(0, sizeof mine, &mine) != 0 || getrusage(RUSAGE_SELF, &usage) != 0) {
    return std::nullopt;
  }
  std::ifstream file(proc_stat_);
  Times t;
  const double per_second = ticks_per_second();
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    const int processor = processor_of(name);
    if (processor < 0 || processor >= CPU_SETSIZE || !CPU_ISSET(processor, &mine)) continue;
    // user (guests in it), nice, system, idle, iowait, irq, softirq, steal
    std::array<double, 8> ticks{};
    for (double& x : ticks) words >> x;
    if (!words) return std::nullopt;
    t.busy += (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / per_second;
    t.idle += (ticks[3] + ticks[4]) / per_second;
    t.stolen += ticks[7] / per_second;
    ++t.processors;
  }
  if (t.processors == 0) return std::nullopt;
  t.own = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  return t;
}

std::optional<MachineLoad> LoadMonitor::observed() const {
  const std::optional<Times> end = now();
  if (!begin_ || !end || begin_->processors != end->processors) return std::nullopt;
  const double busy = end->busy - begin_->busy, idle = end->idle - begin_->idle,
               stolen = end->stolen - begin_->stolen, own = end->own - begin_->own;
  const double all = busy + idle + stolen, each = all / end->processors;
  if (each * ticks_per_second() < kLeastTicks) return std::nullopt;
  MachineLoad load;
  load.processors = end->processors;
  load.own = own / each;
  load.other = std::max(0.0, busy - own) / each;
  load.stolen = std::max(0.0, stolen) / each;
  return load;
}

std::vector<std::string> disturbances(const MachineLoad& load, int threads) {
  std::vector<std::string> reasons;
  const double left = load.processors - load.other, wanted = std::min(threads, load.processors);
  if (left < (1 - kUsualShare) * wanted) {
    reasons.push_back(fmt::format(
        "other processes kept {:.2g} of {} processors busy, and this one computes with {} thread{}",
        load.other, load.processors, threads, threads == 1 ? "" : "s"));
  }
  if (load.stolen > kUsualStolenShare * load.processors) {
    reasons.push_back(fmt::format("the hypervisor gave {:.0f}% of the processors' time to others",
                                  100 * load.stolen / load.processors));
  }
  return reasons;
}

}  // namespace triforce
