// devices.h of a program that was built without CUDA.
#include "host/devices.h"

namespace triforce {

CudaDevices find_cuda_devices() { return {false, {}, "this program was built without CUDA"}; }

std::optional<CudaSession> open_cuda(const std::string& device, std::optional<DType>,
                                     const LocalRank&, std::shared_ptr<HostAttention>) {
  if (!device.starts_with("cuda")) return std::nullopt;
  throw Error(ExitCode::kDevice, "NoCuda",
              fmt::format("--device {}: this program was built without CUDA; expected auto or cpu",
                          device));
}

std::unique_ptr<Communicator> connect_devices(Backend&, RankLinks&) { return nullptr; }

}  // namespace triforce
