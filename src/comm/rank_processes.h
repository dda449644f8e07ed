// The processes of a run that several ranks share.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/launcher.h"
#include "core/file.h"
#include "triforce/error.h"
#include "triforce/rank.h"

namespace triforce {

// The ranks of a run: those that a launcher started together (launcher.h) or else forks of the one
// process that was started, which is rank 0, and with which the others end, however it ends.
class RankProcesses {
 public:
  // Before the process has threads, or devices. Returns once in each rank. `size` is what is
  // forked; how many a launcher started it says itself. Throws Error(kResources), and for a
  // launcher's ranks as Launcher and connect_started_ranks(), with `limit`.
  static RankProcesses start(int size, std::chrono::milliseconds limit);
  RankProcesses(RankProcesses&&) noexcept = default;
  RankProcesses& operator=(RankProcesses&&) noexcept = default;
  // Rank 0: ends its forks that have not ended by themselves.
  ~RankProcesses();

  const Shard& shard() const { return shard_; }
  const LocalRank& local() const { return local_; }
  int machines() const { return machines_; }
  // For RankLinks; once.
  std::vector<Descriptor> take_sockets() { return std::move(sockets_); }
  // All ranks, when rank 0 has let the others go: rank 0 waits until its forks have ended, and
  // kills those that have not after `limit`; a launcher's ranks leave together.
  void join(std::chrono::milliseconds limit);
  // Rank 0, when the others may not end by themselves, as its last act: ends its forks, or with all
  // ranks of a launcher this process and the launcher, whose status it is.
  void abandon(ExitCode code);

 private:
  RankProcesses() = default;

  static RankProcesses fork_all(int size);
  void end_forks(std::chrono::milliseconds limit);

  Shard shard_;
  LocalRank local_;
  int machines_ = 1;
  std::vector<Descriptor> sockets_;
  std::vector<pid_t> children_;
  std::unique_ptr<Launcher> launcher_;
};

}  // namespace triforce
