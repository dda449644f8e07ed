// The CUDA backend: own kernels, recorded passes; prefill GEMMs by cuBLASLt where it is installed,
// else by the kernel of linear layers, 32 rows at a time. description() says which.
#pragma once
#include <memory>

#include "cuda/runtime.h"
#include "triforce/host_attention.h"

namespace triforce {

struct CudaOptions {
  int device = 0;             // ordinal, as list-devices prints it
  DType dtype = DType::kF16;  // of weights, KV caches and activations: f16 or bf16
  bool replay = true;         // false: every pass is launched anew, for comparison
  bool cublas_lt = true;      // false: as where cuBLASLt is not installed
  // Asked where the device's memory is the host's; null: as if it did not say.
  cuda::HostAvailable host_available = nullptr;
  // What computes attention over rows in host memory; null: no view may be on_host.
  std::shared_ptr<HostAttention> host_attention = nullptr;
};

// Throws Error(kDevice) if the device cannot be used, Error(kUsage) for another dtype.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

}  // namespace triforce
