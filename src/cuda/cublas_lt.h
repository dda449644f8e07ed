// cuBLASLt, opened at run time: its half gigabyte need not be where the program runs.
#pragma once
#include <cublasLt.h>

#include <memory>
#include <span>
#include <string>

#include "cuda/shared_library.h"

namespace triforce::cuda {

// The functions of the library that are used. Lives as long as somebody may call one of them.
class CublasLt {
 public:
  // File names in the order in which they are tried: libcublasLt.so of the major version that this
  // program was built with, then of the other one (12, 13).
  static std::span<const std::string> usual_names();
  // The first of `names` that can be loaded and has every function; nullptr: none.
  static std::shared_ptr<const CublasLt> open(std::span<const std::string> names = usual_names());

  std::string version() const;  // "13.0.2"

  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_desc = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_desc = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;

 private:
  bool load(const SharedLibrary& from);
};

}  // namespace triforce::cuda
