#include "host/start.h"

#include <omp.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace triforce {
namespace {

constexpr rlim_t kLeastStackBytes = rlim_t{1} << 20;

// Variables by which GCC's, LLVM's and Intel's OpenMP bind threads.
constexpr const char* kBindings[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY",
                                     "KMP_AFFINITY"};

// libgomp's threads otherwise spin for whole time slices when another process wants a core, and a
// pass becomes dozens of times slower. libgomp reads the variable before main() begins.
bool bound_spinning() {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) {
    return false;
  }
  return setenv("GOMP_SPINCOUNT", "5000", 0) == 0;
}

// The first thread was bound before main(). It gets the processors of all places back, of which
// the next start makes no places.
bool unbind() {
  cpu_set_t places;
  CPU_ZERO(&places);
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> ids(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, ids.data());
    for (const int id : ids) {
      if (id >= 0 && id < CPU_SETSIZE) CPU_SET(id, &places);
    }
  }
  if (CPU_COUNT(&places) > 0) sched_setaffinity(0, sizeof places, &places);
  bool changed = false;
  for (const char* name : kBindings) {
    if (std::getenv(name) != nullptr && unsetenv(name) == 0) changed = true;
  }
  return changed;
}

bool widen_stacks() {
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeastStackBytes) return false;
  const rlim_t wanted = std::min(kLeastStackBytes, limit.rlim_max);
  if (wanted == limit.rlim_cur) return false;
  limit.rlim_cur = wanted;
  return setrlimit(RLIMIT_STACK, &limit) == 0;
}

}  // namespace

void settle_start(char** argv) {
  const bool spinning = bound_spinning(), binding = unbind(), stacks = widen_stacks();
  // Started by the dynamic loader as a program (ld.so triforce-bench ...), /proc/self/exe is the
  // loader.
  if (getauxval(AT_BASE) == 0) return;
  if (spinning || binding || stacks) execv("/proc/self/exe", argv);
}

}  // namespace triforce
