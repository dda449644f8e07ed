#include "comm/rank_processes.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "comm/rank_sockets.h"

namespace triforce {

RankProcesses RankProcesses::start(int size, std::chrono::milliseconds limit) {
  std::unique_ptr<Launcher> launcher = Launcher::find();
  if (launcher == nullptr) return fork_all(size);
  Connected connected = connect_started_ranks(
      launcher->shard(), [&](std::span<std::byte> parts) { launcher->all_gather(parts); }, limit);
  RankProcesses started;
  started.shard_ = launcher->shard();
  started.local_ = connected.local;
  started.machines_ = connected.machines;
  started.sockets_ = std::move(connected.sockets);
  started.launcher_ = std::move(launcher);
  return started;
}

RankProcesses RankProcesses::fork_all(int size) {
  std::vector<std::vector<Descriptor>> sockets = connect_ranks(size);
  const pid_t leader = ::getpid();
  RankProcesses all;
  all.shard_ = {0, size};
  for (int rank = 1; rank < size; ++rank) {
    const pid_t pid = ::fork();
    if (pid < 0) {
      throw_resources("ForkFailed", "rank {} of {}: {}", rank, size, std::strerror(errno));
    }
    if (pid > 0) {
      all.children_.push_back(pid);
      continue;
    }
    all.children_.clear();
    all.shard_.rank = rank;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != leader) ::_exit(0);  // it had ended before that
    break;
  }
  all.local_ = {all.shard_.rank, size, size};
  all.sockets_ = std::move(sockets[static_cast<std::size_t>(all.shard_.rank)]);
  return all;  // the sockets of other ranks are closed here
}

RankProcesses::~RankProcesses() { end_forks(std::chrono::milliseconds(0)); }

void RankProcesses::join(std::chrono::milliseconds limit) {
  end_forks(limit);
  if (launcher_ != nullptr) launcher_->finish();
}

void RankProcesses::abandon(ExitCode code) {
  end_forks(std::chrono::milliseconds(0));
  if (launcher_ != nullptr) launcher_->abort(static_cast<int>(code));
}

void RankProcesses::end_forks(std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kStep{5};
  const auto end = std::chrono::steady_clock::now() + limit;
  for (const pid_t child : children_) {
    bool killed = false;
    pid_t ended = 0;
    while ((ended = ::waitpid(child, nullptr, killed ? 0 : WNOHANG)) == 0 ||
           (ended < 0 && errno == EINTR)) {
      if (std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(kStep);
      } else if (!killed) {
        ::kill(child, SIGKILL);
        killed = true;
      }
    }
  }
  children_.clear();
}

}  // namespace triforce
