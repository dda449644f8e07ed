// The CUDA backend: own kernels, cuBLASLt for prefill GEMMs, recorded passes.
#pragma once
#include <memory>

#include "triforce/backend.h"

namespace triforce {

struct CudaOptions {
  int device = 0;             // ordinal, as list-devices prints it
  DType dtype = DType::kF16;  // of weights, KV caches and activations: f16 or bf16
  bool replay = true;         // false: every pass is launched anew, for comparison
};

// Throws Error(kDevice) if the device cannot be used, Error(kUsage) for another dtype.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

}  // namespace triforce
