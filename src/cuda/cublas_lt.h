// cuBLASLt, opened at run time: its half gigabyte need not be where the program runs.
#pragma once
#include <cublasLt.h>

#include <memory>
#include <span>
#include <string>

namespace triforce::cuda {

// The functions of the library that are used. Lives as long as somebody may call one of them.
class CublasLt {
 public:
  // File names in the order in which they are tried: libcublasLt.so of the major version that this
  // program was built with, then of the other one (12, 13), each first as the system's loader finds
  // it (LD_LIBRARY_PATH, ld.so.cache), then in the folders where the toolkit installs itself.
  static std::span<const std::string> usual_names();
  // The first of `names` that can be loaded and has every function; nullptr: none.
  static std::shared_ptr<const CublasLt> open(std::span<const std::string> names = usual_names());
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt();

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
  explicit CublasLt(void* library);
  bool complete() const { return complete_; }

  void* library_;
  bool complete_ = true;
};

}  // namespace triforce::cuda
