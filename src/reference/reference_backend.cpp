#include "reference/reference_backend.h"

#include <cmath>
#include <cstring>

#include "reference/reference_impl.h"

namespace triforce {
namespace reference {
namespace {

void convert(const TensorView& dst, const TensorView& src) {
  const std::int64_t n = dst.numel();
  TF_CHECK(dst.rank == src.rank && dst.shape == src.shape, "copy of {} elements into {}",
           src.numel(), n);
  TF_CHECK(dst.is_contiguous() && src.is_contiguous());
  if (n == 0) return;
  if (dst.dtype == src.dtype) {
    std::memcpy(dst.data, src.data, static_cast<std::size_t>(dst.bytes()));
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) store(dst.data, dst.dtype, i, load(src.data, src.dtype, i));
}

}  // namespace

ReferenceBackend::ReferenceBackend(int kv_granule) : granule_(kv_granule) {
  TF_CHECK(kv_granule >= 1, "granule {}", kv_granule);
}

std::string ReferenceBackend::description() const { return "reference, plain loops in double"; }

Matrix ReferenceBackend::make_matrix(std::int64_t rows, std::int64_t cols, DType dtype,
                                     MemTag tag) {
  TF_CHECK(rows > 0 && cols > 0 && dtype != DType::kI32, "matrix {} x {} {}", rows, cols,
           to_string(dtype));
  return {Buffer(allocator_, matrix_bytes(rows, cols, dtype), Place::kHost, tag), dtype, rows,
          cols};
}

std::int64_t ReferenceBackend::matrix_bytes(std::int64_t rows, std::int64_t cols,
                                            DType dtype) const {
  return rows * cols * size_of(dtype);
}

void ReferenceBackend::set_rows(Matrix& m, std::int64_t row_begin, TensorView src) {
  TF_CHECK(src.rank == 2 && src.shape[1] == m.cols, "rows of {} for {} columns", src.shape[1],
           m.cols);
  TF_CHECK(row_begin >= 0 && row_begin + src.shape[0] <= m.rows, "rows [{}, {}) of {}", row_begin,
           row_begin + src.shape[0], m.rows);
  for (std::int64_t i = 0; i < src.shape[0]; ++i) {
    for (std::int64_t j = 0; j < m.cols; ++j) {
      store(m.storage.data(), m.dtype, (row_begin + i) * m.cols + j, at(src, i, j));
    }
  }
}

void ReferenceBackend::upload(TensorView dst, TensorView host_src) { convert(dst, host_src); }
void ReferenceBackend::download(TensorView host_dst, TensorView src) { convert(host_dst, src); }

void ReferenceBackend::random_values(TensorView out, const DrawKey& key, std::int64_t first,
                                     double scale) {
  TF_CHECK(out.dtype == DType::kF32 && out.is_contiguous() && first >= 0);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    double bells[4];
    philox_bells(key, static_cast<std::uint32_t>((first + i) / 4), bells);
    out.as<float>()[i] = static_cast<float>(bells[(first + i) % 4] * scale);
  }
}

void ReferenceBackend::embed(TensorView tokens, TensorView table, TensorView out) {
  TF_CHECK(tokens.dtype == DType::kI32 && tokens.rank == 1 && table.rank == 2 && out.rank == 2);
  TF_CHECK(out.shape[0] == tokens.shape[0] && out.shape[1] == table.shape[1]);
  for (std::int64_t t = 0; t < out.shape[0]; ++t) {
    const Token id = tokens.as<Token>()[t];
    TF_CHECK(id >= 0 && id < table.shape[0], "token {} of {}", id, table.shape[0]);
    for (std::int64_t j = 0; j < out.shape[1]; ++j) set(out, t, j, at(table, id, j));
  }
}

void ReferenceBackend::rms_norm(TensorView x, TensorView w, float eps, TensorView out) {
  TF_CHECK(x.rank == 2 && out.rank == 2 && w.numel() == x.shape[1] && out.shape == x.shape);
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

void ReferenceBackend::linear(TensorView x, const Matrix& w, TensorView out, bool accumulate) {
  TF_CHECK(x.rank == 2 && out.rank == 2 && x.shape[0] == out.shape[0]);
  TF_CHECK(x.shape[1] == w.cols && out.shape[1] == w.rows, "[{}, {}] from [{}, {}] * [{}, {}]^T",
           out.shape[0], out.shape[1], x.shape[0], x.shape[1], w.rows, w.cols);
  const bool round_inputs = w.dtype == DType::kBF16;
  for (std::int64_t t = 0; t < x.shape[0]; ++t) {
    for (std::int64_t i = 0; i < w.rows; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < w.cols; ++j) {
        double in = at(x, t, j);
        if (round_inputs) {
          in = static_cast<double>(bf16_to_f32(f32_to_bf16(static_cast<float>(in))));
        }
        sum += in * load(w.storage.data(), w.dtype, i * w.cols + j);
      }
      set(out, t, i, accumulate ? at(out, t, i) + sum : sum);
    }
  }
}

void ReferenceBackend::swiglu(TensorView gate_up, TensorView out) {
  TF_CHECK(gate_up.rank == 2 && out.rank == 2 && gate_up.shape[0] == out.shape[0] &&
           gate_up.shape[1] == 2 * out.shape[1]);
  const std::int64_t f = out.shape[1];
  for (std::int64_t t = 0; t < out.shape[0]; ++t) {
    for (std::int64_t j = 0; j < f; ++j) {
      const double gate = at(gate_up, t, j);
      set(out, t, j, gate / (1.0 + std::exp(-gate)) * at(gate_up, t, f + j));
    }
  }
}

void ReferenceBackend::copy(TensorView dst, TensorView src, Queue) {
  TF_CHECK(dst.dtype == src.dtype && dst.numel() == src.numel());
  TF_CHECK(dst.is_contiguous() && src.is_contiguous());
  if (dst.numel() > 0) std::memmove(dst.data, src.data, static_cast<std::size_t>(dst.bytes()));
}

Event ReferenceBackend::record(Queue) {
  events_[next_event_ % kEvents] = std::chrono::steady_clock::now();
  return {next_event_++};
}

double ReferenceBackend::elapsed_ms(Event a, Event b) {
  TF_CHECK(next_event_ - a.id <= kEvents && next_event_ - b.id <= kEvents,
           "events {} and {} are forgotten at {}", a.id, b.id, next_event_);
  return std::chrono::duration<double, std::milli>(events_[b.id % kEvents] -
                                                   events_[a.id % kEvents])
      .count();
}

}  // namespace reference

std::unique_ptr<Backend> make_reference_backend(int kv_granule) {
  return std::make_unique<reference::ReferenceBackend>(kv_granule);
}

}  // namespace triforce
