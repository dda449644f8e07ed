// The backend a configuration asks for.
#pragma once
#include <memory>

#include "cpu/context.h"
#include "host/devices.h"
#include "triforce/backend.h"
#include "triforce/config.h"
#include "triforce/rank.h"

namespace triforce {

struct Session {
  std::unique_ptr<Backend> backend;
  std::optional<CudaFacts> gpu;  // none: the backend is the CPU's
  cpu::Isa isa = cpu::Isa::kScalar;
  int threads = 0;
  DType dtype = DType::kF32;       // of weights and KV caches
  std::vector<std::string> notes;  // on the device, for who starts a run on it
};
// That of one rank, on the CPU with its part of the threads, on CUDA with a device of its own:
// those that see the same devices take them from the one asked for on. Throws Error(kDevice) for an
// instruction level or a device that is not there.
Session open_session(const RunConfig& config, const LocalRank& rank = {});

}  // namespace triforce
