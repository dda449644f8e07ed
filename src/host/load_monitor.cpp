#include "host/load_monitor.h"

#include <algorithm>

#include "triforce/format.h"

namespace triforce {
namespace {

// The kernel counts in hundredths of a second nearly everywhere: of less a share is too coarse.
constexpr double kLeastSeconds = 0.2;

// Adds what passed between two readings of the same machines; false: they are not known.
bool add_passed(const std::vector<LoadTimes>& begin, const std::vector<LoadTimes>& end,
                std::vector<LoadTimes>& sum) {
  if (begin.empty() || begin.size() != end.size()) return false;
  if (sum.empty()) sum.resize(begin.size());
  if (sum.size() != begin.size()) return false;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    const LoadTimes &a = begin[i], &b = end[i];
    LoadTimes& s = sum[i];
    if (a.processors != b.processors || (s.processors > 0 && s.processors != b.processors)) {
      return false;
    }
    s.busy += b.busy - a.busy;
    s.idle += b.idle - a.idle;
    s.stolen += b.stolen - a.stolen;
    s.own += b.own - a.own;
    s.throttled += b.throttled - a.throttled;
    s.processors = b.processors;
    s.processes = b.processes;
  }
  return true;
}

std::optional<MachineLoad> load_of(const LoadTimes& t) {
  const double each = (t.busy + t.idle + t.stolen) / t.processors;
  if (each < kLeastSeconds) return std::nullopt;
  MachineLoad load;
  load.processors = t.processors;
  load.own = t.own / each;
  load.other = std::max(0.0, t.busy - t.own) / each;
  load.stolen = std::max(0.0, t.stolen) / each;
  load.processes = t.processes;
  if (t.throttled > 0) load.throttled = t.throttled / each;
  return load;
}

double taken_share(const MachineLoad& load) {
  return (load.other + load.stolen + load.throttled.value_or(0)) / load.processors;
}

}  // namespace

void LoadMonitor::pause() {
  unknown_ = unknown_ || !add_passed(begin_, read_(), sum_);
  begin_.clear();
}

std::vector<LoadTimes> LoadMonitor::watched() const {
  std::vector<LoadTimes> all = sum_;
  if (unknown_ || (!begin_.empty() && !add_passed(begin_, read_(), all))) return {};
  return all;
}

std::optional<MachineLoad> LoadMonitor::observed() const {
  std::optional<MachineLoad> most;
  for (const LoadTimes& t : watched()) {
    const std::optional<MachineLoad> load = load_of(t);
    if (!load) return std::nullopt;
    if (!most || taken_share(*load) > taken_share(*most)) most = load;
  }
  return most;
}

std::vector<std::string> disturbances(const MachineLoad& load, int threads) {
  std::vector<std::string> reasons;
  const int processes = load.processes.value_or(1);
  const double left = load.processors - load.other,
               wanted = std::min(threads * processes, load.processors);
  if (left < (1 - kUsualShareOfOthers) * wanted) {
    const std::string who =
        processes == 1 ? "this one computes" : fmt::format("{} ranks compute", processes);
    reasons.push_back(fmt::format(
        "other processes kept {:.2g} of {} processors busy, and {} with {} thread{}{}", load.other,
        load.processors, who, threads, threads == 1 ? "" : "s", processes == 1 ? "" : " each"));
  }
  if (load.stolen > kUsualStolenShare * load.processors) {
    reasons.push_back(fmt::format("the hypervisor gave {:.0f}% of the processors' time to others",
                                  100 * load.stolen / load.processors));
  }
  if (load.throttled.value_or(0) > kUsualStolenShare * load.processors) {
    reasons.push_back(fmt::format(
        "the quota of the control group stopped {:.2g} processors' worth of this run's threads: "
        "--threads within the quota avoids it",
        *load.throttled));
  }
  return reasons;
}

}  // namespace triforce
