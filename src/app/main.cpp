#include <unistd.h>

#include <cstdlib>

#include "app/commands.h"
#include "app/last_resort.h"

namespace {

// Threads of the OpenMP runtime spin before they sleep: by default some ten milliseconds, so that
// on a busy machine they take the processor from the thread they wait for. libgomp reads its
// environment before main(), hence the second start; a user's own setting is left alone.
void bound_spinning(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", "5000", 0) == 0) execv("/proc/self/exe", argv);
}

}  // namespace

int main(int argc, char** argv) {
  bound_spinning(argv);
  triforce::install_last_resort();
  const int code = triforce::run_program(std::vector<std::string>(argv, argv + argc));
  triforce::main_returns();
  return code;
}
