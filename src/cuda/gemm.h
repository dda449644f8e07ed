// Prefill GEMMs by cuBLASLt.
#pragma once
#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <tuple>

#include "cuda/cuda_allocator.h"
#include "triforce/tensor.h"

namespace triforce::cuda {

// out[T, N] (+)= x[T, K] * w[N, K]^T; x and w are f16 or bf16 (the same), out that type or f32,
// sums in f32. Any layout whose rows are contiguous. Throws Error(kDevice).
class Gemm {
 public:
  // Takes the library's workspace from `allocator`.
  explicit Gemm(CudaAllocator& allocator);
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  ~Gemm();

  void run(const TensorView& x, const TensorView& w, const TensorView& out, bool accumulate,
           cudaStream_t stream);

 private:
  struct Plan;
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, DType, DType, bool, std::uint32_t>;
  const Plan& plan(const TensorView& x, const TensorView& w, const TensorView& out,
                   bool accumulate);

  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  // By shapes, types and alignment: the heuristic is asked once for each.
  std::map<Key, Plan> plans_;
};

}  // namespace triforce::cuda
