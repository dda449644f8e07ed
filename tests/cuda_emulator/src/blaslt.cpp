#include <cublasLt.h>
#include <algorithm>

#include <cstring>
#include <vector>

#include "api.h"
#include "tf_half_bits.h"
#include "triforce/format.h"

using namespace tf_emulator::detail;

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::uint64_t rows, cols;
  std::int64_t ld;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;

  std::size_t element() const { return type == CUDA_R_32F ? 4 : 2; }
  std::uint64_t lines() const { return order == CUBLASLT_ORDER_COL ? cols : rows; }
  std::uint64_t line() const { return order == CUBLASLT_ORDER_COL ? rows : cols; }
  // Index of element (row, col).
  std::size_t at(std::uint64_t row, std::uint64_t col) const {
    const auto step = static_cast<std::uint64_t>(ld);
    return order == CUBLASLT_ORDER_COL ? col * step + row : row * step + col;
  }
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};

namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;

bool known_type(cudaDataType_t type) {
  return type == CUDA_R_16F || type == CUDA_R_16BF || type == CUDA_R_32F;
}

struct Shape {
  std::uint64_t m, n, k;
};

// The product's shape, if the operands agree and are what the emulator multiplies.
cublasStatus_t shape_of(const cublasLtMatmulDescOpaque_t& desc, const Layout& a, const Layout& b,
                        const Layout& c, const Layout& d, Shape* shape) {
  if (desc.compute != CUBLAS_COMPUTE_32F || desc.scale != CUDA_R_32F || a.type != b.type ||
      c.type != d.type || (d.type != a.type && d.type != CUDA_R_32F)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool ta = desc.trans_a != CUBLAS_OP_N, tb = desc.trans_b != CUBLAS_OP_N;
  *shape = {ta ? a.cols : a.rows, tb ? b.rows : b.cols, ta ? a.rows : a.cols};
  const std::uint64_t k = tb ? b.cols : b.rows;
  if (k != shape->k || d.rows != shape->m || d.cols != shape->n || c.rows != shape->m ||
      c.cols != shape->n) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (layout->ld < static_cast<std::int64_t>(layout->line())) return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

float load(const void* data, cudaDataType_t type, std::size_t index) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[index];
  return type == CUDA_R_16F ? float_of_half(bits) : float_of_bfloat(bits);
}
void store(void* data, cudaDataType_t type, std::size_t index, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<std::uint16_t*>(data)[index] =
        type == CUDA_R_16F ? half_of_float(value) : bfloat_of_float(value);
  }
}

// Every line of the matrix lies in live device memory and, to be read, has been written.
bool check_matrix(const char* name, const void* data, const Layout& layout, bool read) {
  Memory& m = memory();
  const std::size_t bytes = layout.line() * layout.element();
  for (std::uint64_t i = 0; i < layout.lines(); ++i) {
    const char* const line = static_cast<const char*>(data) +
                             i * static_cast<std::uint64_t>(layout.ld) * layout.element();
    const auto address = reinterpret_cast<std::uintptr_t>(line);
    if (!m.device.holds(line, bytes)) {
      runtime().set_trap(
          {tf_emulator::Trap::kOutOfBounds,
           fmt::format("cublasLtMatmul: line {} of {} ({} bytes) is not in device memory: {}", i,
                       name, bytes, m.device.describe(address))});
      return false;
    }
    std::uint8_t* const states = m.device.states(m.device.offset(address));
    if (!read) {
      std::memset(states, kInitialised, bytes);
      m.device.note_writer(line, bytes, m.work);
      continue;
    }
    for (std::size_t j = 0; tf_emulator::instrumented() && j < bytes; ++j) {
      if (states[j] == kInitialised) continue;
      runtime().set_trap(
          {tf_emulator::Trap::kUninitialised,
           fmt::format("cublasLtMatmul: byte {} of line {} of {} was never written: {}", j, i, name,
                       m.device.describe(address + j))});
      return false;
    }
  }
  return true;
}

// op(matrix) as f32 with the summed dimension contiguous: [outer][k].
std::vector<float> gather(const void* data, const Layout& layout, bool k_is_row,
                          std::uint64_t outer, std::uint64_t k) {
  std::vector<float> values(outer * k);
  for (std::uint64_t o = 0; o < outer; ++o) {
    for (std::uint64_t i = 0; i < k; ++i) {
      const std::size_t at = k_is_row ? layout.at(i, o) : layout.at(o, i);
      values[o * k + i] = load(data, layout.type, at);
    }
  }
  return values;
}

float dot(const float* x, const float* y, std::uint64_t k) {
  constexpr std::uint64_t kLanes = 16;
  float sums[kLanes] = {};
  std::uint64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    for (std::uint64_t j = 0; j < kLanes; ++j) sums[j] += x[i + j] * y[i + j];
  }
  for (; i < k; ++i) sums[i % kLanes] += x[i] * y[i];
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

struct Product {
  cublasLtMatmulDescOpaque_t desc;
  Layout a, b, c, d;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  float alpha, beta;
  bool rounds_parts;
  Shape shape;
};

// A value as D's type holds it.
float rounded(cudaDataType_t type, float value) {
  std::uint16_t bits[2] = {};
  store(bits, type, 0, value);
  return load(bits, type, 0);
}

// The sum of k products: in two parts that are rounded to D's type where the scheme says so, as the
// library sums long rows of small matrices.
float sum_of(const Product& p, const float* x, const float* y) {
  const std::uint64_t k = p.shape.k, first = p.rounds_parts && k >= 256 ? k / 2 : 0;
  if (first == 0) return dot(x, y, k);
  return rounded(p.d.type, dot(x, y, first)) +
         rounded(p.d.type, dot(x + first, y + first, k - first));
}

void multiply(const Product& p) {
  if (!check_matrix("A", p.a_data, p.a, true) || !check_matrix("B", p.b_data, p.b, true) ||
      (p.beta != 0 && !check_matrix("C", p.c_data, p.c, true)) ||
      !check_matrix("D", p.d_data, p.d, false)) {
    return;
  }
  const auto [m, n, k] = p.shape;
  const std::vector<float> a = gather(p.a_data, p.a, p.desc.trans_a != CUBLAS_OP_N, m, k);
  const std::vector<float> b = gather(p.b_data, p.b, p.desc.trans_b == CUBLAS_OP_N, n, k);
  for (std::uint64_t j = 0; j < n; ++j) {
    for (std::uint64_t i = 0; i < m; ++i) {
      float value = p.alpha * sum_of(p, &a[i * k], &b[j * k]);
      if (p.beta != 0) value += p.beta * load(p.c_data, p.c.type, p.c.at(i, j));
      store(p.d_data, p.d.type, p.d.at(i, j), value);
    }
  }
}

template <class T>
bool read_attribute(T* to, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return false;
  std::memcpy(to, value, sizeof(T));
  return true;
}
cublasStatus_t valid(bool good) {
  return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (Call()->ready() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an invalid value was used as an argument";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the requested functionality is not supported";
  }
  return "unknown cuBLAS status";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *desc = new cublasLtMatmulDescOpaque_t{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return valid(read_attribute(&desc->trans_a, value, bytes));
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return valid(read_attribute(&desc->trans_b, value, bytes));
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  if (!known_type(type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  *layout = new Layout{type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return valid(read_attribute(&layout->type, value, bytes) && known_type(layout->type));
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return valid(read_attribute(&layout->order, value, bytes));
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return valid(read_attribute(&layout->rows, value, bytes));
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return valid(read_attribute(&layout->cols, value, bytes));
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return valid(read_attribute(&layout->ld, value, bytes));
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return valid(read_attribute(&preference->workspace_bytes, value, bytes));
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return valid(read_attribute(
          preference->alignment + (attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), value,
          bytes));
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return valid(read_attribute(&preference->reductions, value, bytes));
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  if (handle == nullptr || preference == nullptr || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  Shape shape{};
  if (const cublasStatus_t status = shape_of(*desc, *a, *b, *c, *d, &shape);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  results[0] = {};
  // What the algorithm relies on; a matrix that begins elsewhere is refused.
  std::copy_n(preference->alignment, 4, results[0].algo.data);
  results[0].algo.data[4] = preference->reductions & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const Call call;
  if (handle == nullptr || alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (call->ready() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  Product p{*desc, *a_layout, *b_layout, *c_layout, *d_layout, a, b, c, d, 0, 0, false, {}};
  p.rounds_parts = algo != nullptr && algo->data[4] != 0;
  std::memcpy(&p.alpha, alpha, sizeof(float));
  std::memcpy(&p.beta, beta, sizeof(float));
  if (const cublasStatus_t status = shape_of(p.desc, p.a, p.b, p.c, p.d, &p.shape);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const void* const matrices[] = {a, b, c, d};
  for (int i = 0; algo != nullptr && i < 4; ++i) {
    const std::uint64_t alignment = algo->data[i];
    if (alignment == 0 || reinterpret_cast<std::uintptr_t>(matrices[i]) % alignment != 0) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  if (workspace_bytes > 0 && !memory().device.holds(workspace, workspace_bytes)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return call->enqueue(stream, [p] { multiply(p); }) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}
