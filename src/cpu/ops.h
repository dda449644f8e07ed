// Row-wise operations around the linear layers. Rows are independent of each other: a row has the
// same bits for any row count, thread count and instruction level.
#pragma once
#include "cpu/workers.h"

namespace triforce::cpu {

// Backend::random_values.
void random_values(const Workers& workers, TensorView out, const DrawKey& key, std::int64_t first,
                   double scale);
// Backend::rms_norm. Squares are summed in f32 over 32 interleaved partial sums.
void rms_norm(const Workers& workers, TensorView x, TensorView w, float eps, TensorView out);
// Backend::head_norm, each head as a row of rms_norm().
void head_norm(const Workers& workers, TensorView x, TensorView w, float eps);
// out[T, N] += bias[N], f32.
void add_bias(const Workers& workers, TensorView bias, TensorView out);
// Backend::swiglu. exp within 2 units in the last place (vector.h).
void swiglu(const Workers& workers, TensorView gate_up, TensorView out);
// Backend::add_parts.
void add_parts(const Workers& workers, TensorView parts, TensorView x);

}  // namespace triforce::cpu
