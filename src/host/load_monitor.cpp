#include "host/load_monitor.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/sha256.h"
#include "host/control_group.h"
#include "triforce/format.h"

namespace triforce {
namespace {

// The kernel counts in ticks, of which a hundred make a second nearly everywhere.
constexpr double kLeastTicks = 20;

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

// The ranks of a run tell each other this.
struct RankPlace {
  std::array<char, 65> machine{};  // a digest
  cpu_set_t processors{};
};

RankPlace place_of_this(const std::string& machine_id) {
  RankPlace place;
  std::ifstream file(machine_id);
  std::string id;
  std::getline(file, id);
  sha256_hex(id).copy(place.machine.data(), place.machine.size() - 1);
  CPU_ZERO(&place.processors);
  if (sched_getaffinity(0, sizeof place.processors, &place.processors) != 0) {
    CPU_ZERO(&place.processors);
  }
  return place;
}

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
  if (each * ticks_per_second() < kLeastTicks) return std::nullopt;
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

RunLoad::RunLoad(RankLinks& links, LoadSource source)
    : links_(links),
      proc_stat_(std::move(source.proc_stat)),
      control_group_root_(std::move(source.control_group_root)) {
  const std::vector<RankPlace> places = links.gather_values(place_of_this(source.machine_id));
  const RankPlace& own = places[static_cast<std::size_t>(links.shard().rank)];
  std::vector<const RankPlace*> machines;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const RankPlace& p : places) {
    const auto known =
        std::ranges::find_if(machines, [&](const RankPlace* m) { return m->machine == p.machine; });
    machine_of_.push_back(static_cast<int>(known - machines.begin()));
    if (known == machines.end()) machines.push_back(&p);
    if (p.machine == own.machine) CPU_OR(&wanted, &wanted, &p.processors);
  }
  for (int n = 0; n < CPU_SETSIZE; ++n) {
    if (CPU_ISSET(n, &wanted)) wanted_.push_back(n);
  }
}

LoadTimes RunLoad::of_rank() const {
  LoadTimes t;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return {};
  t.own = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  t.throttled = control_group(control_group_root_).throttled_s.value_or(0);
  std::ifstream file(proc_stat_);
  const double per_second = ticks_per_second();
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (!std::ranges::binary_search(wanted_, processor_of(name))) continue;
    // user (guests in it), nice, system, idle, iowait, irq, softirq, steal
    std::array<double, 8> ticks{};
    for (double& x : ticks) words >> x;
    if (!words) return {};
    t.busy += (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / per_second;
    t.idle += (ticks[3] + ticks[4]) / per_second;
    t.stolen += ticks[7] / per_second;
    ++t.processors;
  }
  return t;
}

std::vector<LoadTimes> RunLoad::of_machines(Gather gather) const {
  std::vector<LoadTimes> machines;
  try {
    const std::vector<LoadTimes> ranks = gather(links_, of_rank());
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r].processors == 0) return {};
      const auto m = static_cast<std::size_t>(machine_of_[r]);
      if (m == machines.size()) {
        machines.push_back(ranks[r]);
        continue;
      }
      machines[m].own += ranks[r].own;
      // All ranks of one group say the same.
      machines[m].throttled = std::max(machines[m].throttled, ranks[r].throttled);
      ++machines[m].processes;
    }
  } catch (const Error&) {  // the next call of an engine says it
    return {};
  }
  return machines;
}

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
