// Class behind make_reference_backend; its ops are spread over the files of this folder.
#pragma once
#include <string>

#include "core/float16.h"
#include "core/host_backend.h"

namespace triforce::reference {

// One element of any floating-point dtype.
inline double load(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(static_cast<const float*>(data)[i]);
    case DType::kF16:
      return static_cast<double>(f16_to_f32(static_cast<const std::uint16_t*>(data)[i]));
    case DType::kBF16:
      return static_cast<double>(bf16_to_f32(static_cast<const std::uint16_t*>(data)[i]));
    case DType::kI32:
      break;
  }
  TF_CHECK(false, "no floating-point element of {}", to_string(dtype));
  return 0;
}

inline void store(void* data, DType dtype, std::int64_t i, double value) {
  const auto x = static_cast<float>(value);
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(data)[i] = x;
      return;
    case DType::kF16:
      static_cast<std::uint16_t*>(data)[i] = f32_to_f16(x);
      return;
    case DType::kBF16:
      static_cast<std::uint16_t*>(data)[i] = f32_to_bf16(x);
      return;
    case DType::kI32:
      break;
  }
  TF_CHECK(false, "no floating-point element of {}", to_string(dtype));
}

// Element j of row i of a matrix whose rows may be strided.
inline double at(const TensorView& m, std::int64_t i, std::int64_t j) {
  return load(m.data, m.dtype, i * m.stride[0] + j);
}
inline void set(const TensorView& m, std::int64_t i, std::int64_t j, double value) {
  store(m.data, m.dtype, i * m.stride[0] + j, value);
}

class ReferenceBackend final : public HostBackend {
 public:
  explicit ReferenceBackend(int kv_granule);

  std::string description() const override;
  Bandwidths measure_bandwidths() override {
    TF_CHECK(false, "the reference backend has no speed");
    return {};
  }
  std::int64_t scratch_bytes(const ScratchShape&) const override { return 0; }  // plain loops

 protected:
  Matrix do_make_matrix(std::int64_t rows, std::int64_t cols, DType dtype, MemTag tag) override;
  std::int64_t do_matrix_bytes(std::int64_t rows, std::int64_t cols, DType dtype) const override;
  void do_set_rows(Matrix& m, std::int64_t row_begin, TensorView src) override;
  void do_upload(TensorView dst, TensorView src) override;
  void do_download(TensorView host_dst, TensorView src) override;

  void do_random_values(TensorView out, const DrawKey& key, std::int64_t first,
                        double scale) override;
  void do_embed(TensorView tokens, TensorView table, TensorView out) override;
  void do_rms_norm(TensorView x, TensorView w, float eps, TensorView out) override;
  void do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate) override;
  void do_rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                      const KvView& kv) override;
  void do_attention(TensorView q, const KvView& kv, const RopeView& rope, TensorView out,
                    TensorView mass, int chunk) override;
  void do_swiglu(TensorView gate_up, TensorView out) override;
  void do_to_probs(TensorView logits, const SamplingParams& params, TensorView probs) override;

  void do_score_chunks(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                       TensorView scores) override;
  void do_top_chunks(TensorView scores, TensorView ids) override;
  void do_gather_chunks(const KvView& src, TensorView ids, int chunk, const KvView& dst) override;
  void do_copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                    std::int64_t dst_row, std::int64_t count) override;
};

}  // namespace triforce::reference
