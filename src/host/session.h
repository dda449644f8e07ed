// The backend that a command computes on.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cpu/workers.h"
#include "host/devices.h"
#include "triforce/backend.h"
#include "triforce/rank.h"

namespace triforce {

struct SessionOptions {
  std::string device = "auto";  // as --device has it
  std::optional<DType> dtype;   // nullopt: bf16 where the processor computes with it, else f32
  int threads = 0;              // 0: one per core this process may run on
  std::string cpu_isa;          // empty: the best one of the processor
  bool host_attends = false;    // with some or all KV heads in host memory
  // The option that asks for KV rows in host memory, for a note; empty: none does.
  std::string_view far_rows_option;
};

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
Session open_session(const SessionOptions& options, const LocalRank& rank = {});

}  // namespace triforce
