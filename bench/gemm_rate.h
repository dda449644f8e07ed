// The rate of oneDNN's matmul that prefill figures are put beside.
#pragma once
#include <algorithm>
#include <chrono>

#include "core/host_allocator.h"
#include "core/rounding.h"
#include "cpu/gemm.h"

namespace triforce::cpu {

// Best rate in GFLOP/s of oneDNN's matmul at size^3 (2 size^3 operations) on packed weights within
// a quarter of a second: bf16 inputs for kBF16, f32 otherwise; 0 if oneDNN has no fast path for it
// at this level.
inline double measure_gemm_gflops(const Context& context, DType dtype, int size = 1024) {
  const bool bf16 = dtype == DType::kBF16;
  const std::int64_t n = round_up(size, 64);
  const Gemm::Shape shape{.weights = bf16                          ? Gemm::Weights::kPanelsBf16
                                     : context.isa >= Isa::kAvx512 ? Gemm::Weights::kPanelsF32
                                                                   : Gemm::Weights::kPlainF32,
                          .m = n,
                          .k = n,
                          .n = n,
                          .lda = n,
                          .ldb = n,
                          .ldc = n,
                          .accumulate = false};
  Gemm gemm;
  if ((bf16 && context.isa < Isa::kAvx512Bf16) || !gemm.supports(context, shape)) return 0;
  HostAllocator allocator;
  const std::int64_t bytes = n * n * (bf16 ? 2 : 4);
  const Buffer x(allocator, bytes, Place::kHost, MemTag::kWorkspace);
  const Buffer w(allocator, bytes, Place::kHost, MemTag::kWorkspace);
  const Buffer out(allocator, n * n * 4, Place::kHost, MemTag::kWorkspace);
  constexpr double kGemmSeconds = 0.25;
  double best = 1e30, spent = 0;
  while (spent < kGemmSeconds) {
    const auto start = std::chrono::steady_clock::now();
    gemm.run(context, shape, x.data(), w.data(), static_cast<float*>(out.data()));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
    spent += took.count();
  }
  return 2.0 * static_cast<double>(n * n * n) / best * 1e-9;
}

}  // namespace triforce::cpu
