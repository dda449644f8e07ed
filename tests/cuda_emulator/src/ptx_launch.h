// Launches that execute the PTX that nvcc made of a kernel, in place of its host body or after it
// (tests/cuda_ptx). ../README.md says by which variables of the environment.
#pragma once
#include <functional>

#include "block.h"

namespace tf_emulator::detail {

// Whether TF_EMULATOR_PTX names a folder of PTX. Ends the program with a message where it, or a
// variable that goes with it, has a value that cannot be used.
bool launches_ptx();

// Runs a launch so. host_body(journal) is the launch with its host body, which notes what it
// writes, and its report. The report of the launch: the host body's trap, a fault of the PTX, or a
// byte of memory that PTX left otherwise than the host body.
TrapReport launch_ptx(const LaunchShape& shape, const KernelCall& call,
                      const std::function<TrapReport(Journal*)>& host_body);

}  // namespace tf_emulator::detail
