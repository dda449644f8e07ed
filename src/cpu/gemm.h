// oneDNN's matmul behind a cache of primitives: the throughput path of linear().
#pragma once
#include <compare>
#include <cstdint>
#include <memory>

#include "cpu/workers.h"

namespace triforce::cpu {

// Limits what oneDNN dispatches to in this process. Only the first call before its first use has
// an effect; a later one is ignored, because oneDNN cannot change its mind.
void limit_gemm_isa(Isa isa);

class Gemm {
 public:
  enum class Weights : std::uint8_t {
    kPanelsBf16,  // [n/64][k/2][64][2], x is bf16
    kPanelsF32,   // [n/64][k][64]
    kPlainF32,    // [k][n], ldb elements apart
  };
  // out[m, n] (+)= x[m, k] * w[k, n]; lda, ldb, ldc in elements. n is at least 2: oneDNN 3.7 takes
  // a single column for contiguous, whatever ldc is.
  struct Shape {
    Weights weights = Weights::kPlainF32;
    std::int64_t m = 0, k = 0, n = 0;
    std::int64_t lda = 0, ldb = 0, ldc = 0;
    bool accumulate = false;
    auto operator<=>(const Shape&) const = default;
  };

  Gemm();
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // Returns whether oneDNN has more than its reference loops for this shape. Builds the primitive,
  // once.
  bool supports(const Workers& workers, const Shape& shape);
  // Requires supports(). Throws Error(kResources) if oneDNN has no memory, else kInternal.
  void run(const Workers& workers, const Shape& shape, const void* x, const void* w, float* out);

 private:
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace triforce::cpu
