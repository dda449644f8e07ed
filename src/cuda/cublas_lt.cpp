#include "cuda/cublas_lt.h"

#include <vector>

#include "triforce/format.h"

namespace triforce::cuda {

std::span<const std::string> CublasLt::usual_names() {
  static const std::vector<std::string> names = [] {
#ifdef TF_CUDA_EMULATED
    // The toolkit's own knows nothing of emulated memory.
    return std::vector<std::string>{"libtf_emulated_cublas_lt.so"};
#else
    constexpr int kBuiltWith = CUBLAS_VER_MAJOR, kOther = kBuiltWith == 13 ? 12 : 13;
    std::vector<std::string> all;
    for (const int major : {kBuiltWith, kOther}) {
      const auto more = library_names(fmt::format("libcublasLt.so.{}", major), major);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
#endif
  }();
  return names;
}

std::shared_ptr<const CublasLt> CublasLt::open(std::span<const std::string> names) {
  const auto functions = std::make_shared<CublasLt>();
  const SharedLibrary library =
      SharedLibrary::open(names, [&](const SharedLibrary& from) { return functions->load(from); });
  return library ? functions : nullptr;
}

bool CublasLt::load(const SharedLibrary& from) {
  return from.find(create, "cublasLtCreate") && from.find(destroy, "cublasLtDestroy") &&
         from.find(get_version, "cublasLtGetVersion") && from.find(matmul, "cublasLtMatmul") &&
         from.find(get_heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
         from.find(create_desc, "cublasLtMatmulDescCreate") &&
         from.find(destroy_desc, "cublasLtMatmulDescDestroy") &&
         from.find(set_desc, "cublasLtMatmulDescSetAttribute") &&
         from.find(create_layout, "cublasLtMatrixLayoutCreate") &&
         from.find(destroy_layout, "cublasLtMatrixLayoutDestroy") &&
         from.find(create_preference, "cublasLtMatmulPreferenceCreate") &&
         from.find(destroy_preference, "cublasLtMatmulPreferenceDestroy") &&
         from.find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
}

std::string CublasLt::version() const {
  const std::size_t number = get_version();  // 130002
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

}  // namespace triforce::cuda
