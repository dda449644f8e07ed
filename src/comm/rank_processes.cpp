#include "comm/rank_processes.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "comm/rank_links.h"

namespace triforce {
namespace {

// Empty for exit code 0.
std::string how_it_ended(int rank, int status) {
  if (WIFSIGNALED(status))
    return fmt::format("rank {}: killed by signal {}", rank, WTERMSIG(status));
  const int code = WEXITSTATUS(status);
  return code == 0 ? "" : fmt::format("rank {}: ended with exit code {}", rank, code);
}

}  // namespace

RankProcesses RankProcesses::start(int size) {
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
      all.children_.push_back({rank, pid});
      continue;
    }
    all.children_.clear();
    all.shard_.rank = rank;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != leader) ::_exit(0);  // it had ended before that
    break;
  }
  all.sockets_ = std::move(sockets[static_cast<std::size_t>(all.shard_.rank)]);
  return all;  // the sockets of other ranks are closed here
}

RankProcesses::~RankProcesses() { join(std::chrono::milliseconds(0)); }

std::vector<std::string> RankProcesses::join(std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kStep{5};
  const auto end = std::chrono::steady_clock::now() + limit;
  std::vector<std::string> wrong;
  for (const Child& child : children_) {
    int status = 0;
    bool killed = false;
    pid_t ended = 0;
    while ((ended = ::waitpid(child.pid, &status, killed ? 0 : WNOHANG)) == 0 ||
           (ended < 0 && errno == EINTR)) {
      if (std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(kStep);
      } else if (!killed) {
        ::kill(child.pid, SIGKILL);
        killed = true;
      }
    }
    if (ended < 0) continue;
    if (killed) {
      wrong.push_back(fmt::format("rank {}: had to be killed", child.rank));
    } else if (std::string how = how_it_ended(child.rank, status); !how.empty()) {
      wrong.push_back(std::move(how));
    }
  }
  children_.clear();
  return wrong;
}

}  // namespace triforce
