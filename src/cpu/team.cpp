#include "cpu/team.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>

#include "triforce/error.h"

namespace triforce::cpu {
namespace {

// More than twice the 24 KiB that AVX2, AVX-512 and oneDNN's products were found to need.
constexpr std::size_t kLeastStackBytes = std::size_t{64} << 10;

struct Team {
  int threads = 0;
  std::size_t least_stack_bytes = std::numeric_limits<std::size_t>::max();  // of all but the caller
};

// The stack of the calling thread; unlimited where the system does not say.
std::size_t stack_bytes() {
  std::size_t bytes = std::numeric_limits<std::size_t>::max();
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return bytes;
  void* base = nullptr;
  if (pthread_attr_getstack(&attributes, &base, &bytes) != 0) {
    bytes = std::numeric_limits<std::size_t>::max();
  }
  pthread_attr_destroy(&attributes);
  return bytes;
}

// Starts a region as oneDNN does: by the calling thread's default.
Team default_team() {
  Team team;
  int threads = 0;
  std::size_t least = team.least_stack_bytes;
#pragma omp parallel reduction(+ : threads) reduction(min : least)
  {
    threads = 1;
    if (omp_get_thread_num() != 0) least = stack_bytes();
  }
  team.threads = threads;
  team.least_stack_bytes = least;
  return team;
}

Team team_of(int threads) {
  omp_set_dynamic(0);
  if (omp_get_max_active_levels() < 1) omp_set_max_active_levels(1);
  omp_set_num_threads(threads);
  return default_team();
}

}  // namespace

int team_size(int threads) { return std::max(1, team_of(threads).threads); }

void expect_team(int threads) {
  thread_local int known = 0;
  if (known == threads && omp_get_max_threads() == threads) return;
  known = 0;
  const Team team = team_of(threads);
  if (team.threads != threads) {
    const char* limit = std::getenv("OMP_THREAD_LIMIT");
    throw_resources(
        "FewerThreads", "--threads: expected {} threads, OpenMP starts {}{}", threads, team.threads,
        limit == nullptr ? std::string() : fmt::format(" (OMP_THREAD_LIMIT={})", limit));
  }
  if (team.least_stack_bytes < kLeastStackBytes) {
    throw_resources("SmallStacks",
                    "--threads: expected stacks of at least {} KiB, OpenMP's threads have {} KiB "
                    "(OMP_STACKSIZE, or ulimit -s)",
                    kLeastStackBytes >> 10U, team.least_stack_bytes >> 10U);
  }
  known = threads;
}

}  // namespace triforce::cpu
