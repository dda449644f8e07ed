#include "reference/reference_backend.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "reference/reference_impl.h"

namespace triforce {
namespace reference {
namespace {

void convert(const TensorView& dst, const TensorView& src) {
  const std::int64_t n = dst.numel();
  if (dst.dtype == src.dtype) {
    std::memcpy(dst.data, src.data, static_cast<std::size_t>(dst.bytes()));
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) store(dst.data, dst.dtype, i, load(src.data, src.dtype, i));
}

}  // namespace

ReferenceBackend::ReferenceBackend(int kv_granule)
    : HostBackend({.kv_granule = kv_granule, .formats = Formats::kAll}) {
  TF_CHECK(kv_granule >= 1, "granule {}", kv_granule);
}

std::string ReferenceBackend::description() const { return "reference, plain loops in double"; }

Matrix ReferenceBackend::do_make_matrix(std::int64_t rows, std::int64_t cols, DType dtype,
                                        MemTag tag) {
  return {Buffer(allocator(), do_matrix_bytes(rows, cols, dtype), Place::kHost, tag), dtype, rows,
          cols};
}

std::int64_t ReferenceBackend::do_matrix_bytes(std::int64_t rows, std::int64_t cols,
                                               DType dtype) const {
  return rows * cols * size_of(dtype);
}

void ReferenceBackend::do_set_rows(Matrix& m, std::int64_t row_begin, TensorView src) {
  for (std::int64_t i = 0; i < src.shape[0]; ++i) {
    for (std::int64_t j = 0; j < m.cols; ++j) {
      store(m.storage.data(), m.dtype, (row_begin + i) * m.cols + j, at(src, i, j));
    }
  }
}

void ReferenceBackend::do_upload(TensorView dst, TensorView host_src) { convert(dst, host_src); }
void ReferenceBackend::do_download(TensorView host_dst, TensorView src) { convert(host_dst, src); }

void ReferenceBackend::do_random_values(TensorView out, const DrawKey& key, std::int64_t first,
                                        double scale) {
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    double normals[4];
    philox_normals(key, static_cast<std::uint32_t>((first + i) / 4), normals);
    out.as<float>()[i] = static_cast<float>(normals[(first + i) % 4] * scale);
  }
}

void ReferenceBackend::do_embed(TensorView tokens, TensorView table, TensorView out) {
  for (std::int64_t t = 0; t < out.shape[0]; ++t) {
    const Token id = tokens.as<Token>()[t];
    for (std::int64_t j = 0; j < out.shape[1]; ++j) set(out, t, j, at(table, id, j));
  }
}

void ReferenceBackend::do_rms_norm(TensorView x, TensorView w, float eps, TensorView out) {
  for (std::int64_t t = 0; t < x.shape[0]; ++t) {
    double squares = 0;
    for (std::int64_t j = 0; j < x.shape[1]; ++j) squares += at(x, t, j) * at(x, t, j);
    const double scale =
        1.0 / std::sqrt(squares / static_cast<double>(x.shape[1]) + static_cast<double>(eps));
    for (std::int64_t j = 0; j < x.shape[1]; ++j) {
      set(out, t, j, at(x, t, j) * scale * load(w.data, w.dtype, j));
    }
  }
}

void ReferenceBackend::do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate) {
  std::vector<double> in(static_cast<std::size_t>(w.cols));
  for (std::int64_t t = 0; t < x.shape[0]; ++t) {
    for (std::int64_t j = 0; j < w.cols; ++j) {
      const auto value = static_cast<float>(at(x, t, j));
      in[static_cast<std::size_t>(j)] =
          static_cast<double>(w.dtype == DType::kBF16 ? bf16_to_f32(f32_to_bf16(value)) : value);
    }
    for (std::int64_t i = 0; i < w.rows; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < w.cols; ++j) {
        sum += in[static_cast<std::size_t>(j)] * load(w.storage.data(), w.dtype, i * w.cols + j);
      }
      set(out, t, i, accumulate ? at(out, t, i) + sum : sum);
    }
  }
}

void ReferenceBackend::do_swiglu(TensorView gate_up, TensorView out) {
  const std::int64_t f = out.shape[1];
  for (std::int64_t t = 0; t < out.shape[0]; ++t) {
    for (std::int64_t j = 0; j < f; ++j) {
      const double gate = at(gate_up, t, j);
      set(out, t, j, gate / (1.0 + std::exp(-gate)) * at(gate_up, t, f + j));
    }
  }
}

}  // namespace reference

std::unique_ptr<Backend> make_reference_backend(int kv_granule) {
  return std::make_unique<reference::ReferenceBackend>(kv_granule);
}

}  // namespace triforce
