// Where the driver keeps what it compiles from PTX (CUDA C++ Programming Guide, "Just-in-Time
// Compilation" and "CUDA Environment Variables").
#pragma once
#include <string>

namespace triforce::cuda {

struct ComputeCache {
  std::string folder;   // CUDA_CACHE_PATH, else .nv/ComputeCache in HOME; may not be there yet
  std::string problem;  // why nothing is kept there, and what to do, one line; empty: it is
};
ComputeCache compute_cache();

}  // namespace triforce::cuda
