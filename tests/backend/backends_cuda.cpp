#include "backend/backends.h"
#include "cuda/cuda_backend.h"

namespace triforce {

std::vector<BackendCase> backends() {
  const auto make = [](DType dtype, bool cublas_lt) {
    return [=] { return make_cuda_backend({.device = 0, .dtype = dtype, .cublas_lt = cublas_lt}); };
  };
  // Minutes each on the emulator, so there each format takes one way through large products.
#if defined(TF_CUDA_EMULATED)
  return {{"cuda_f16", make(DType::kF16, true), {}},
          {"cuda_bf16_without_cublas_lt", make(DType::kBF16, false), {}}};
#else
  return {{"cuda_f16", make(DType::kF16, true), {}},
          {"cuda_bf16", make(DType::kBF16, true), {}},
          {"cuda_f16_without_cublas_lt", make(DType::kF16, false), {}},
          {"cuda_bf16_without_cublas_lt", make(DType::kBF16, false), {}}};
#endif
}

}  // namespace triforce
