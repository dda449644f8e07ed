// The monitor finds what else kept the machines of a run busy while it measured. It reads Linux's
// /proc.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/rank_links.h"
#include "core/load_times.h"
#include "triforce/report.h"

namespace triforce {

// A LoadSource supplies the figures of a machine. Tests have their own.
struct LoadSource {
  std::string proc_stat = "/proc/stat";  // the time of each processor (proc_stat(5))
  // Tells machines apart: the same in all containers of one, which count each other's time.
  std::string machine_id = "/proc/sys/kernel/random/boot_id";
  std::string control_group_root;  // before the paths of control_group()
};

// The processors of all machines of a run, whose ranks know of each other's time.
class RunLoad {
 public:
  // All ranks construct it at once; the links outlive it. Throws as RankLinks.
  explicit RunLoad(RankLinks& links, LoadSource source = {});
  // Returns this rank's own time, and that of the processors that ranks of its machine may run on.
  LoadTimes of_rank() const;
  // Answers of_rank() of every rank in their order; rank 0 gives its own.
  using Gather = std::vector<LoadTimes> (*)(RankLinks& links, const LoadTimes& own);
  // Returns the times of each machine, in an order that stays. Rank 0 calls it. It is empty if a
  // machine does not say, or a rank is gone.
  std::vector<LoadTimes> of_machines(Gather gather) const;

 private:
  RankLinks& links_;
  std::string proc_stat_, control_group_root_;
  std::vector<int> wanted_;      // numbers of those processors
  std::vector<int> machine_of_;  // [rank]: 0, 1, ... as they first appear
};

// Watches between resume() and pause(), any number of times; costs nothing meanwhile.
class LoadMonitor {
 public:
  // The times of each machine; empty: not known.
  using Read = std::function<std::vector<LoadTimes>()>;
  explicit LoadMonitor(Read read) : read_(std::move(read)) {}

  void resume() { begin_ = read_(); }
  void pause();
  // Returns what was watched so far, for each machine; empty: not known. restore() begins with it,
  // in place of what was watched before.
  std::vector<LoadTimes> watched_so_far() const { return watched(); }
  void restore(std::vector<LoadTimes> sum) {
    unknown_ = sum.empty();
    sum_ = std::move(sum);
  }
  // Over all that was watched so far; of several machines, that of which others took the largest
  // part. nullopt: the system does not say, or too little time has passed to tell.
  std::optional<MachineLoad> observed() const;

 private:
  // Returns what passed since resume(), added to what was watched before.
  std::vector<LoadTimes> watched() const;

  Read read_;
  std::vector<LoadTimes> begin_;  // of what is being watched; empty: nothing
  std::vector<LoadTimes> sum_;    // of what was
  bool unknown_ = false;          // a part of it
};

// Other processes may take the first share of what a run's threads need, and other guests the
// second of its processors' time. Every system has that much; beyond it times do not tell how fast
// the machine is.
inline constexpr double kUsualShareOfOthers = 0.10, kUsualStolenShare = 0.02;

// Why times that were measured under such a load do not tell how fast this machine is with
// `threads` threads a process, one line each; empty: they do.
std::vector<std::string> disturbances(const MachineLoad& load, int threads);

}  // namespace triforce
