// Products of small integers are exact in every type: the emulated cuBLASLt must give the very
// values.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <tuple>
#include <vector>

#include "emulator_test_support.h"

namespace {

using emulator_test::ok;

class BlasLt : public emulator_test::Emulator {};

void good(cublasStatus_t status) {
  ASSERT_EQ(status, CUBLAS_STATUS_SUCCESS) << cublasLtGetStatusString(status);
}

struct Matrix {
  std::uint64_t rows, cols;
  std::int64_t ld;
  cublasLtOrder_t order;
  std::size_t at(std::uint64_t r, std::uint64_t c) const {
    const auto step = static_cast<std::uint64_t>(ld);
    return order == CUBLASLT_ORDER_COL ? c * step + r : r * step + c;
  }
  std::size_t elements() const {
    return static_cast<std::uint64_t>(ld) * (order == CUBLASLT_ORDER_COL ? cols : rows);
  }
};

template <class T>
constexpr cudaDataType_t kType = CUDA_R_32F;
template <>
constexpr cudaDataType_t kType<__half> = CUDA_R_16F;
template <>
constexpr cudaDataType_t kType<__nv_bfloat16> = CUDA_R_16BF;

cublasLtMatrixLayout_t layout(const Matrix& m, cudaDataType_t type) {
  cublasLtMatrixLayout_t made = nullptr;
  good(cublasLtMatrixLayoutCreate(&made, type, m.rows, m.cols, m.ld));
  good(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_ORDER, &m.order,
                                        sizeof(m.order)));
  return made;
}

template <class T>
T* upload(const std::vector<T>& values) {
  T* const device = emulator_test::device_array<T>(values.size());
  emulator_test::to_device(device, values.data(), values.size() * sizeof(T));
  return device;
}

// d = 2 * op(a) * op(b) + beta * c with every layout and transposition.
template <class In, class Out>
void check_product(cudaStream_t stream, bool ta, bool tb, cublasLtOrder_t order, float beta) {
  const std::uint64_t m = 5, n = 7, k = 19;
  const auto make = [order](std::uint64_t rows, std::uint64_t cols, std::int64_t extra) {
    const auto line = static_cast<std::int64_t>(order == CUBLASLT_ORDER_COL ? rows : cols);
    return Matrix{rows, cols, line + extra, order};
  };
  const Matrix a = ta ? make(k, m, 3) : make(m, k, 3), b = tb ? make(n, k, 0) : make(k, n, 1);
  const Matrix d = make(m, n, 2);
  std::vector<In> av(a.elements(), In(100.0F)), bv(b.elements(), In(100.0F));
  std::vector<Out> dv(d.elements(), Out(-3.0F));
  const auto fa = [](std::uint64_t i, std::uint64_t j) {
    return static_cast<float>(static_cast<int>((i * 3 + j) % 5) - 2);
  };
  const auto fb = [](std::uint64_t i, std::uint64_t j) {
    return static_cast<float>(static_cast<int>((i + 2 * j) % 3) - 1);
  };
  for (std::uint64_t l = 0; l < k; ++l) {
    for (std::uint64_t i = 0; i < m; ++i) av[ta ? a.at(l, i) : a.at(i, l)] = In(fa(i, l));
    for (std::uint64_t j = 0; j < n; ++j) bv[tb ? b.at(j, l) : b.at(l, j)] = In(fb(l, j));
  }
  In *da = upload(av), *db = upload(bv);
  Out* dd = upload(dv);

  cublasLtHandle_t handle = nullptr;
  good(cublasLtCreate(&handle));
  cublasLtMatmulDesc_t desc = nullptr;
  good(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t op_a = ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                          op_b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
  good(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof(op_a)));
  good(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof(op_b)));
  cublasLtMatrixLayout_t la = layout(a, kType<In>), lb = layout(b, kType<In>);
  cublasLtMatrixLayout_t ld = layout(d, kType<Out>);
  cublasLtMatmulPreference_t preference = nullptr;
  good(cublasLtMatmulPreferenceCreate(&preference));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  good(
      cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, ld, ld, preference, 1, &result, &found));
  ASSERT_EQ(found, 1);
  const float alpha = 2;
  good(cublasLtMatmul(handle, desc, &alpha, da, la, db, lb, &beta, dd, ld, dd, ld, &result.algo,
                      nullptr, 0, stream));
  ok(cudaStreamSynchronize(stream));
  ok(cudaMemcpy(dv.data(), dd, dv.size() * sizeof(Out), cudaMemcpyDeviceToHost));
  for (std::uint64_t i = 0; i < m; ++i) {
    for (std::uint64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::uint64_t l = 0; l < k; ++l) sum += fa(i, l) * fb(l, j);
      ASSERT_EQ(static_cast<float>(dv[d.at(i, j)]), 2 * sum - 3 * beta) << i << " " << j;
    }
  }
  for (cublasLtMatrixLayout_t used : {la, lb, ld}) good(cublasLtMatrixLayoutDestroy(used));
  good(cublasLtMatmulPreferenceDestroy(preference));
  good(cublasLtMatmulDescDestroy(desc));
  good(cublasLtDestroy(handle));
}

TEST_F(BlasLt, EveryLayoutAndType) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const auto order : {CUBLASLT_ORDER_COL, CUBLASLT_ORDER_ROW}) {
        for (const float beta : {0.0F, 1.0F}) {
          SCOPED_TRACE(testing::Message() << ta << tb << order << beta);
          check_product<__half, __half>(stream_, ta, tb, order, beta);
          check_product<__half, float>(stream_, ta, tb, order, beta);
          check_product<__nv_bfloat16, __nv_bfloat16>(stream_, ta, tb, order, beta);
          check_product<__nv_bfloat16, float>(stream_, ta, tb, order, beta);
          check_product<float, float>(stream_, ta, tb, order, beta);
        }
      }
    }
  }
}

TEST_F(BlasLt, UnwrittenOperandTraps) {
  if (!tf_emulator::instrumented()) GTEST_SKIP() << "accesses are not checked in this build";
  const Matrix square{4, 4, 4, CUBLASLT_ORDER_COL};
  float* const a = emulator_test::device_array<float>(16);
  float* const d = emulator_test::device_array<float>(16);
  ok(cudaMemsetAsync(a, 0, 15 * sizeof(float), stream_));
  cublasLtHandle_t handle = nullptr;
  good(cublasLtCreate(&handle));
  cublasLtMatmulDesc_t desc = nullptr;
  good(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  cublasLtMatrixLayout_t l = layout(square, CUDA_R_32F);
  const float alpha = 1, beta = 0;
  good(cublasLtMatmul(handle, desc, &alpha, a, l, a, l, &beta, d, l, d, l, nullptr, nullptr, 0,
                      stream_));
  expect_trap(tf_emulator::Trap::kUninitialised, {"cublasLtMatmul", "line 3 of A"});
  good(cublasLtMatrixLayoutDestroy(l));
  good(cublasLtMatmulDescDestroy(desc));
  good(cublasLtDestroy(handle));
}

}  // namespace
