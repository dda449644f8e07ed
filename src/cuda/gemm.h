// Prefill GEMMs by cuBLASLt.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "cuda/cublas_lt.h"
#include "cuda/cuda_allocator.h"
#include "triforce/tensor.h"

namespace triforce::cuda {

// out[T, N] (+)= x[T, K] * w[N, K]^T; x and w are f16 or bf16 (the same), out that type or f32,
// sums in f32. Any layout whose rows are contiguous. Throws Error(kDevice).
class Gemm {
 public:
  // Takes the library's workspace from `allocator`. `library` is not null.
  Gemm(CudaAllocator& allocator, std::shared_ptr<const CublasLt> library);
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  ~Gemm();

  void run(const TensorView& x, const TensorView& w, const TensorView& out, bool accumulate,
           cudaStream_t stream);

 private:
  struct Plan;
  // The largest powers of two, 256 at most, of which the addresses of x, w and out are multiples:
  // what kernels may rely on.
  struct Alignments {
    std::uint32_t x, w, out;
    auto operator<=>(const Alignments&) const = default;
  };
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, DType, DType, bool, Alignments>;
  const Plan& plan(const TensorView& x, const TensorView& w, const TensorView& out,
                   bool accumulate);

  void check(cublasStatus_t status, const char* call) const;

  std::shared_ptr<const CublasLt> lt_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  // By shapes, types and alignments: the heuristic is asked once for each.
  std::map<Key, Plan> plans_;
};

}  // namespace triforce::cuda
