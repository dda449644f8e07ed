// Linear layers on packed weights: own kernels for up to kMaxBatchInvariantRows rows, oneDNN above.
#pragma once
#include <cstdint>

#include "cpu/gemm.h"
#include "cpu/workers.h"
#include "triforce/backend.h"

namespace triforce::cpu {

// Bytes of a matrix in panels (linear_kernels.h says how), padding included.
std::int64_t packed_bytes(std::int64_t rows, std::int64_t cols, WeightFormat format);

// Backend::set_rows on a matrix of packed_bytes() zero-filled bytes.
void pack_rows(const Workers& workers, Matrix& m, std::int64_t row_begin, TensorView src);

// Backend::embed on such a matrix.
void embed(const Workers& workers, TensorView tokens, const Matrix& table, TensorView out);

// Scratch for linear() with up to `rows` rows and up to `widest` in features.
std::int64_t linear_scratch_bytes(std::int64_t rows, std::int64_t max_width);

// Backend::linear. x[T, cols] and out[T, rows] are f32. For bf16 weights x is rounded to bf16 and
// sums stay f32; f32 and f16 weights take x as it is. T <= kMaxBatchInvariantRows: every output
// element is one sum in rising k, the same bits for any T and any number of threads.
void linear(const Workers& workers, Gemm& gemm, TensorView x, const Matrix& w, TensorView out,
            bool accumulate, RowPath path);

}  // namespace triforce::cpu
