// An OpenMP runtime that starts at most MOST_THREADS threads of a region and says nothing: loaded
// before GCC's.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

extern "C" {

using Region = void (*)(void*);

int omp_get_max_threads(void);

void GOMP_parallel(Region body, void* data, unsigned threads, unsigned flags) {
  using Parallel = void (*)(Region, void*, unsigned, unsigned);
  static const auto real = reinterpret_cast<Parallel>(dlsym(RTLD_NEXT, "GOMP_parallel"));
  static const char* const most = std::getenv("MOST_THREADS");
  const unsigned wanted = threads == 0 ? static_cast<unsigned>(omp_get_max_threads()) : threads;
  real(body, data, std::min(wanted, static_cast<unsigned>(std::atoi(most))), flags);
}
}
