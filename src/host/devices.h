// The CUDA devices of this machine.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/rank_links.h"
#include "triforce/communicator.h"
#include "triforce/host_attention.h"
#include "triforce/rank.h"

namespace triforce {

struct CudaDevice {
  int ordinal = 0;
  std::string name;          // "NVIDIA H200"
  std::string architecture;  // "sm_90"
  std::int64_t memory_bytes = 0;
  std::optional<std::int64_t> free_bytes;  // none: it cannot be used
  std::string problem;                     // why it cannot be used; empty: it can
  std::vector<std::string> notes;          // what who uses it should know, one line each
};
struct CudaDevices {
  bool built = false;  // with CUDA
  std::vector<CudaDevice> devices;
  std::string reason;  // why there is none
};
// Looks at each device; one that cannot be used says so in its `problem`.
CudaDevices find_cuda_devices();

// A result says this of the device that a CUDA backend was opened on.
struct CudaFacts {
  std::string name, architecture;  // "NVIDIA H200", "sm_90"
  std::string driver, runtime;     // CUDA versions: "13.0"
  std::string pci_bus_id;          // "0000:17:00.0"
};
struct CudaSession {
  std::unique_ptr<Backend> backend;
  CudaFacts gpu;
  std::vector<std::string> notes;  // of the device
};
// The backend of --device auto, cpu, cuda or cuda:N; nullopt: the CPU's. `auto` takes the first
// usable device. Local rank r takes the r-th after that one, for `auto` the r-th usable one. No
// device but the wanted one (for `auto`, those before it) is touched. dtype: of weights, KV caches
// and activations, f16 unless said. host_attention: for rows in host memory; null: none. Throws
// Error(kDevice, "NoCuda") if a device is asked for that is not there or not usable, Error(kUsage)
// for f32.
std::optional<CudaSession> open_cuda(const std::string& device, std::optional<DType> dtype,
                                     const LocalRank& rank = {},
                                     std::shared_ptr<HostAttention> host_attention = nullptr);
// Tensors from device to device, by NCCL, for backends that open_cuda() opened. To be called on all
// ranks at once; nullptr on all of them if NCCL is not installed for one. Throws as the links and
// make_nccl_communicator() (nccl.h).
std::unique_ptr<Communicator> connect_devices(Backend& backend, RankLinks& links);

}  // namespace triforce
