// Tests: tests/host/run_meters_test.cpp
#include "host/run_meters.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "core/sha256.h"
#include "host/control_group.h"
#include "triforce/error.h"

namespace triforce {
namespace {

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
  std::array<char, 32> gpu{};      // PCI bus id; empty: none computes
  cpu_set_t processors{};
};

RankPlace place_of_this(const std::string& machine_id, const std::string& gpu) {
  RankPlace place;
  std::ifstream file(machine_id);
  std::string id;
  std::getline(file, id);
  sha256_hex(id).copy(place.machine.data(), place.machine.size() - 1);
  gpu.copy(place.gpu.data(), place.gpu.size() - 1);
  CPU_ZERO(&place.processors);
  if (sched_getaffinity(0, sizeof place.processors, &place.processors) != 0) {
    CPU_ZERO(&place.processors);
  }
  return place;
}

}  // namespace

RunMeters::RunMeters(RankLinks& links, MeterSource source)
    : links_(links),
      proc_stat_(std::move(source.proc_stat)),
      control_group_root_(std::move(source.control_group_root)),
      energy_(source.energy) {
  const std::vector<RankPlace> places =
      links.gather_values(place_of_this(source.machine_id, source.energy.pci_bus_id));
  const RankPlace& own = places[static_cast<std::size_t>(links.shard().rank)];
  std::vector<const RankPlace*> machines;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (auto p = places.begin(); p != places.end(); ++p) {
    const auto known = std::ranges::find_if(
        machines, [&](const RankPlace* m) { return m->machine == p->machine; });
    machine_of_.push_back(static_cast<int>(known - machines.begin()));
    if (known == machines.end()) machines.push_back(&*p);
    if (p->machine == own.machine) CPU_OR(&wanted, &wanted, &p->processors);
    is_first_of_gpu_.push_back(std::none_of(places.begin(), p, [&](const RankPlace& before) {
      return before.machine == p->machine && before.gpu == p->gpu;
    }));
  }
  for (int n = 0; n < CPU_SETSIZE; ++n) {
    if (CPU_ISSET(n, &wanted)) wanted_.push_back(n);
  }
}

LoadTimes RunMeters::times_of_rank() const {
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

RankReading RunMeters::of_rank() const { return {times_of_rank(), energy_.joules()}; }

std::vector<LoadTimes> RunMeters::load(Gather gather) const {
  std::vector<LoadTimes> machines;
  try {
    const std::vector<RankReading> ranks = gather(links_, of_rank());
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const LoadTimes& t = ranks[r].load;
      if (t.processors == 0) return {};
      const auto m = static_cast<std::size_t>(machine_of_[r]);
      if (m == machines.size()) {
        machines.push_back(t);
        continue;
      }
      machines[m].own += t.own;
      // All ranks of one group say the same.
      machines[m].throttled = std::max(machines[m].throttled, t.throttled);
      ++machines[m].processes;
    }
  } catch (const Error&) {  // the next call of an engine says it
    return {};
  }
  return machines;
}

ByDomain RunMeters::sum(const std::vector<RankReading>& ranks) const {
  ByDomain all = {0, 0, 0};
  int machines = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ByDomain own = ranks[r].joules;
    const bool is_first_of_machine = machine_of_[r] == machines;
    if (is_first_of_machine) ++machines;
    if (!is_first_of_machine) own.processor = own.memory = 0;
    if (!is_first_of_gpu_[r]) own.gpu = 0;
    all = all + own;
  }
  return all;
}

ByDomain RunMeters::joules(Gather gather) const {
  try {
    return sum(gather(links_, of_rank()));
  } catch (const Error&) {  // the next call of an engine says it
    return {};
  }
}

ByDomain RunMeters::measure_idle_watts() {
  using Clock = std::chrono::steady_clock;
  const ByDomain before = sum(links_.gather_values(of_rank()));
  if (!before.total()) return {};
  const auto begin = Clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const ByDomain after = sum(links_.gather_values(of_rank()));
  return 1 / std::chrono::duration<double>(Clock::now() - begin).count() * (after - before);
}

}  // namespace triforce
