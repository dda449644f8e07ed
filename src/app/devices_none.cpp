// devices.h of a program that was built without CUDA.
#include "app/devices.h"

namespace triforce {

CudaDevices find_cuda_devices() { return {false, {}, "this program was built without CUDA"}; }

std::unique_ptr<Backend> open_cuda_backend(const std::string& device, std::optional<DType>) {
  if (!device.starts_with("cuda")) return nullptr;
  throw Error(ExitCode::kDevice, "NoCuda",
              fmt::format("--device {}: this program was built without CUDA; expected auto or cpu",
                          device));
}

std::optional<CudaFacts> opened_cuda_device() { return std::nullopt; }

}  // namespace triforce
