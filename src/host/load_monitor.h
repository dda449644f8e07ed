// The monitor finds what else kept the machines of a run busy while it measured.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/load_times.h"
#include "triforce/report.h"

namespace triforce {

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
