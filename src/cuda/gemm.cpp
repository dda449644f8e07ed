#include "cuda/gemm.h"

#include <type_traits>
#include <utility>

#include "cuda/runtime.h"

namespace triforce::cuda {
namespace {

// What NVIDIA recommends for Hopper; older devices are content with less.
constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

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

using Layout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>,
                               decltype(&cublasLtMatrixLayoutDestroy)>;
using MatmulDesc = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>,
                                   decltype(&cublasLtMatmulDescDestroy)>;
using Preference = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                                   decltype(&cublasLtMatmulPreferenceDestroy)>;

std::uint32_t alignment_of(const TensorView& v) {
  constexpr std::uintptr_t kMaxAlignment = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(v.data) | kMaxAlignment;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

}  // namespace

struct Gemm::Plan {
  Plan(const CublasLt& lt)
      : desc(nullptr, lt.destroy_desc),
        w(nullptr, lt.destroy_layout),
        x(nullptr, lt.destroy_layout),
        out(nullptr, lt.destroy_layout) {}

  MatmulDesc desc;
  Layout w, x, out;
  cublasLtMatmulAlgo_t algorithm{};
};

// Throws what failed in the words of the call.
#define TF_LT(call) check((lt_->call), #call)

void Gemm::check(cublasStatus_t status, const char* call) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(
      ExitCode::kDevice, "CuBlas",
      fmt::format("{}: status {} of cuBLASLt {}", call, static_cast<int>(status), lt_->version()));
}

Gemm::Gemm(CudaAllocator& allocator, std::shared_ptr<const CublasLt> library)
    : lt_(std::move(library)),
      workspace_(allocator, kWorkspaceBytes, Place::kDevice, MemTag::kWorkspace) {
  TF_LT(create(&handle_));
}

Gemm::~Gemm() {
  plans_.clear();
  static_cast<void>(lt_->destroy(handle_));
}

const Gemm::Plan& Gemm::plan(const TensorView& x, const TensorView& w, const TensorView& out,
                             bool accumulate) {
  const Alignments alignments{alignment_of(x), alignment_of(w), alignment_of(out)};
  const Key key{x.shape[0],    w.shape[0], w.shape[1], x.stride[0], w.stride[0],
                out.stride[0], x.dtype,    out.dtype,  accumulate,  alignments};
  if (const auto it = plans_.find(key); it != plans_.end()) return it->second;
  Plan p(*lt_);
  cublasLtMatmulDesc_t desc = nullptr;
  TF_LT(create_desc(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  p.desc.reset(desc);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  TF_LT(set_desc(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
  // Row-major [rows, cols] is column-major [cols, rows] to the library.
  const auto set_layout = [&](Layout& layout, const TensorView& v) {
    TF_CHECK(v.rank == 2 && v.stride[1] == 1, "GEMM: expected contiguous rows");
    cublasLtMatrixLayout_t l = nullptr;
    TF_LT(create_layout(&l, data_type(v.dtype), static_cast<std::uint64_t>(v.shape[1]),
                        static_cast<std::uint64_t>(v.shape[0]), v.stride[0]));
    layout.reset(l);
  };
  set_layout(p.w, w);
  set_layout(p.x, x);
  set_layout(p.out, out);
  cublasLtMatmulPreference_t created = nullptr;
  TF_LT(create_preference(&created));
  const Preference preference(created, lt_->destroy_preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
    TF_LT(set_preference(created, which, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
  // Parts of a long sum are added as f32, never rounded to the output's type.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  // The library's A, B, C and D are our w, x, out and out.
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments.w);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments.x);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments.out);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments.out);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  TF_LT(get_heuristic(handle_, desc, p.w.get(), p.x.get(), p.out.get(), p.out.get(), created, 1,
                      &result, &found));
  if (found == 0) {
    throw Error(
        ExitCode::kDevice, "CuBlas",
        fmt::format("cuBLASLt {} has no algorithm for [{}, {}] x [{}, {}]^T in {}", lt_->version(),
                    x.shape[0], x.shape[1], w.shape[0], w.shape[1], to_string(x.dtype)));
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
  TF_LT(matmul(handle_, p.desc.get(), &alpha, w.data, p.w.get(), x.data, p.x.get(), &beta, out.data,
               p.out.get(), out.data, p.out.get(), &p.algorithm, workspace_.data(),
               static_cast<std::size_t>(workspace_.bytes()), stream));
}

}  // namespace triforce::cuda
