// The processes of a run that several ranks share.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "core/file.h"
#include "triforce/shard.h"

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
  // Rank 0: ends the others that have not ended by themselves.
  ~RankProcesses();

  const Shard& shard() const { return shard_; }
  const LocalRank& local() const { return local_; }
  int machines() const { return machines_; }
  // For RankLinks; once.
  std::vector<Descriptor> take_sockets() { return std::move(sockets_); }
  // Rank 0: waits until the others have ended; those that have not after `limit` are killed.
  void join(std::chrono::milliseconds limit);

 private:
  RankProcesses() = default;

  static RankProcesses fork_all(int size);

  Shard shard_;
  LocalRank local_;
  int machines_ = 1;
  std::vector<Descriptor> sockets_;
  std::vector<pid_t> children_;
};

}  // namespace triforce
