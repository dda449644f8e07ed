// The processes of a run that several ranks share.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "core/file.h"
#include "triforce/shard.h"

namespace triforce {

// Forks a run into `size` ranks. The process that starts it is rank 0; the others end with it,
// however it ends.
class RankProcesses {
 public:
  // Before the process has threads, or devices. Returns once in each rank. Throws
  // Error(kResources).
  static RankProcesses start(int size);
  RankProcesses(RankProcesses&&) noexcept = default;
  RankProcesses& operator=(RankProcesses&&) noexcept = default;
  // Rank 0: ends the others that have not ended by themselves.
  ~RankProcesses();

  const Shard& shard() const { return shard_; }
  // For RankLinks; once.
  std::vector<Descriptor> take_sockets() { return std::move(sockets_); }
  // Rank 0: waits until the others have ended; those that have not after `limit` are killed.
  void join(std::chrono::milliseconds limit);

 private:
  RankProcesses() = default;

  Shard shard_;
  std::vector<Descriptor> sockets_;
  std::vector<pid_t> children_;
};

}  // namespace triforce
