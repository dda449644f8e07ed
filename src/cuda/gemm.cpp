#include "cuda/gemm.h"

#include <algorithm>

#include "cuda/runtime.h"

namespace triforce::cuda {
namespace {

// What NVIDIA recommends for Hopper; older devices are content with less.
constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

void check_lt(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ExitCode::kDevice, "CuBlas",
              fmt::format("{}: cuBLASLt status {}", call, static_cast<int>(status)));
}
#define TF_LT(call) check_lt((call), #call)

cudaDataType_t data_type(DType t) {
  switch (t) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kI32:
      break;
  }
  TF_CHECK(false, "GEMM of {}", to_string(t));
  return CUDA_R_32F;
}

using Layout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using MatmulDesc = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// The largest power of two, 256 at most, of which the data's address is a multiple: what kernels
// may rely on.
std::uint32_t alignment_of(const TensorView& v) {
  constexpr std::uintptr_t kMost = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(v.data) | kMost;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

// Row-major [rows, cols] is column-major [cols, rows] to the library.
Layout layout(const TensorView& v) {
  TF_CHECK(v.rank == 2 && v.stride[1] == 1, "GEMM: expected contiguous rows");
  cublasLtMatrixLayout_t l = nullptr;
  TF_LT(cublasLtMatrixLayoutCreate(&l, data_type(v.dtype), static_cast<std::uint64_t>(v.shape[1]),
                                   static_cast<std::uint64_t>(v.shape[0]), v.stride[0]));
  return Layout(l);
}

}  // namespace

struct Gemm::Plan {
  MatmulDesc desc;
  Layout w, x, out;
  cublasLtMatmulAlgo_t algorithm{};
};

Gemm::Gemm(CudaAllocator& allocator)
    : workspace_(allocator, kWorkspaceBytes, Place::kDevice, MemTag::kWorkspace) {
  TF_LT(cublasLtCreate(&handle_));
}

Gemm::~Gemm() {
  plans_.clear();
  static_cast<void>(cublasLtDestroy(handle_));
}

const Gemm::Plan& Gemm::plan(const TensorView& x, const TensorView& w, const TensorView& out,
                             bool accumulate) {
  const std::uint32_t alignment = std::min({alignment_of(x), alignment_of(w), alignment_of(out)});
  const Key key{x.shape[0],    w.shape[0], w.shape[1], x.stride[0], w.stride[0],
                out.stride[0], x.dtype,    out.dtype,  accumulate,  alignment};
  if (const auto it = plans_.find(key); it != plans_.end()) return it->second;
  Plan p;
  cublasLtMatmulDesc_t desc = nullptr;
  TF_LT(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  p.desc = MatmulDesc(desc);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  TF_LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                       sizeof(transposed)));
  p.w = layout(w);
  p.x = layout(x);
  p.out = layout(out);
  cublasLtMatmulPreference_t created = nullptr;
  TF_LT(cublasLtMatmulPreferenceCreate(&created));
  const Preference preference(created);
  const auto most = static_cast<std::uint64_t>(kWorkspaceBytes);
  TF_LT(cublasLtMatmulPreferenceSetAttribute(created, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &most, sizeof(most)));
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    TF_LT(cublasLtMatmulPreferenceSetAttribute(created, which, &alignment, sizeof(alignment)));
  }
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  TF_LT(cublasLtMatmulAlgoGetHeuristic(handle_, desc, p.w.get(), p.x.get(), p.out.get(),
                                       p.out.get(), created, 1, &result, &found));
  if (found == 0) {
    throw Error(ExitCode::kDevice, "CuBlas",
                fmt::format("cuBLASLt has no algorithm for [{}, {}] x [{}, {}]^T in {}", x.shape[0],
                            x.shape[1], w.shape[0], w.shape[1], to_string(x.dtype)));
  }
  p.algorithm = result.algo;
  return plans_.emplace(key, std::move(p)).first->second;
}

void Gemm::run(const TensorView& x, const TensorView& w, const TensorView& out, bool accumulate,
               cudaStream_t stream) {
  TF_CHECK(x.shape[1] == w.shape[1] && x.shape[0] == out.shape[0] && w.shape[0] == out.shape[1] &&
               x.dtype == w.dtype,
           "GEMM: x [{}, {}] {}, w [{}, {}] {}, out [{}, {}]", x.shape[0], x.shape[1],
           to_string(x.dtype), w.shape[0], w.shape[1], to_string(w.dtype), out.shape[0],
           out.shape[1]);
  const Plan& p = plan(x, w, out, accumulate);
  const float alpha = 1, beta = accumulate ? 1.0F : 0.0F;
  TF_LT(cublasLtMatmul(handle_, p.desc.get(), &alpha, w.data, p.w.get(), x.data, p.x.get(), &beta,
                       out.data, p.out.get(), out.data, p.out.get(), &p.algorithm,
                       workspace_.data(), static_cast<std::size_t>(workspace_.bytes()), stream));
}

}  // namespace triforce::cuda
