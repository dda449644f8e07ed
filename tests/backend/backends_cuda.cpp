#include "backend/backends.h"
#include "cuda/cuda_backend.h"

namespace triforce {

std::vector<BackendCase> backends() {
  const auto make = [](DType dtype, bool cublas_lt) {
    return [=] { return make_cuda_backend({.device = 0, .dtype = dtype, .cublas_lt = cublas_lt}); };
  };
  return {{"cuda_f16", make(DType::kF16, true), {}},
          {"cuda_bf16", make(DType::kBF16, true), {}},
          {"cuda_bf16_without_cublas_lt", make(DType::kBF16, false), {}}};
}

}  // namespace triforce
