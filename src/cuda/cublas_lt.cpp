#include "cuda/cublas_lt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <vector>

namespace triforce::cuda {
namespace {

std::vector<std::string> make_usual_names() {
#ifdef TF_CUDA_EMULATED
  return {"libtf_emulated_cublas_lt.so"};  // the toolkit's own knows nothing of emulated memory
#else
  constexpr int kBuiltWith = CUBLAS_VER_MAJOR, kOther = kBuiltWith == 13 ? 12 : 13;
  std::vector<std::string> names;
  for (const int major : {kBuiltWith, kOther}) {
    const std::string name = fmt::format("libcublasLt.so.{}", major);
    names.push_back(name);
    for (const std::string& folder :
         {std::string("/usr/local/cuda"), fmt::format("/usr/local/cuda-{}", major),
          std::string("/opt/cuda")}) {
      names.push_back(fmt::format("{}/lib64/{}", folder, name));
    }
  }
  return names;
#endif
}

}  // namespace

std::span<const std::string> CublasLt::usual_names() {
  static const std::vector<std::string> names = make_usual_names();
  return names;
}

std::shared_ptr<const CublasLt> CublasLt::open(std::span<const std::string> names) {
  for (const std::string& name : names) {
    // Libraries that hold kernels are not made to be unloaded before the process ends.
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) continue;
    const std::shared_ptr<const CublasLt> found(new CublasLt(library));
    if (found->complete()) return found;
  }
  return nullptr;
}

CublasLt::CublasLt(void* library) : library_(library) {
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    complete_ = complete_ && function != nullptr;
  };
  find(create, "cublasLtCreate");
  find(destroy, "cublasLtDestroy");
  find(get_version, "cublasLtGetVersion");
  find(matmul, "cublasLtMatmul");
  find(get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(create_desc, "cublasLtMatmulDescCreate");
  find(destroy_desc, "cublasLtMatmulDescDestroy");
  find(set_desc, "cublasLtMatmulDescSetAttribute");
  find(create_layout, "cublasLtMatrixLayoutCreate");
  find(destroy_layout, "cublasLtMatrixLayoutDestroy");
  find(create_preference, "cublasLtMatmulPreferenceCreate");
  find(destroy_preference, "cublasLtMatmulPreferenceDestroy");
  find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
}

CublasLt::~CublasLt() { dlclose(library_); }

std::string CublasLt::version() const {
  const std::size_t number = get_version();  // 130002
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

}  // namespace triforce::cuda
