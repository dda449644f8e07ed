// Class behind make_reference_backend; its ops are spread over the files of this folder.
#pragma once
#include <array>
#include <chrono>
#include <string>

#include "core/float16.h"
#include "core/host_allocator.h"
#include "triforce/backend.h"

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
  TF_CHECK(m.data != nullptr);
  store(m.data, m.dtype, i * m.stride[0] + j, value);
}

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(int kv_granule);

  std::string description() const override;
  Allocator& allocator() override { return allocator_; }
  Place place() const override { return Place::kHost; }
  DType activation_dtype() const override { return DType::kF32; }
  std::int64_t prefill_rows() const override { return 512; }
  int kv_granule() const override { return granule_; }
  Bandwidths measure_bandwidths() override {
    TF_CHECK(false, "the reference backend has no speed");
    return {};
  }
  void reserve(const ScratchShape&) override {}  // plain loops need no scratch
  std::int64_t scratch_bytes(const ScratchShape&) const override { return 0; }

  Matrix make_matrix(std::int64_t rows, std::int64_t cols, DType dtype, MemTag tag) override;
  std::int64_t matrix_bytes(std::int64_t rows, std::int64_t cols, DType dtype) const override;
  void set_rows(Matrix& m, std::int64_t row_begin, TensorView src) override;
  void upload(TensorView dst, TensorView host_src) override;
  void download(TensorView host_dst, TensorView src) override;

  void random_values(TensorView out, const DrawKey& key, std::int64_t first, double scale) override;
  void embed(TensorView tokens, TensorView table, TensorView out) override;
  void rms_norm(TensorView x, TensorView w, float eps, TensorView out) override;
  void linear(TensorView x, const Matrix& w, TensorView out, bool accumulate) override;
  void rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                   const KvView& kv) override;
  void attention(TensorView q, const KvView& kv, const RopeView& rope, TensorView out,
                 TensorView mass, int chunk) override;
  void swiglu(TensorView gate_up, TensorView out) override;

  void to_laws(TensorView logits, const LawParams& params, TensorView laws) override;
  Token sample(TensorView law, const DrawKey& key, std::int64_t position,
               Acceptance acceptance) override;
  Verdict judge(TensorView p, TensorView q, std::span<const Token> tokens, const DrawKey& key,
                std::int64_t position, const JudgeRule& rule) override;

  void score_chunks(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                    TensorView scores) override;
  void top_chunks(TensorView scores, TensorView ids) override;
  void gather_chunks(const KvView& src, TensorView ids, int chunk, const KvView& dst) override;
  void copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst, std::int64_t dst_row,
                 std::int64_t count) override;

  void copy(TensorView dst, TensorView src, Queue q) override;
  Event record(Queue q) override;
  void wait(Queue, Event) override {}  // both queues run in call order
  double elapsed_ms(Event a, Event b) override;
  void synchronize() override {}
  void replay(std::uint64_t, const std::function<void()>& body) override { body(); }

 private:
  void check_kv(const KvView& kv) const;

  static constexpr std::size_t kEvents = 4096;  // the newest ones can be asked for
  HostAllocator allocator_;
  int granule_;
  std::array<std::chrono::steady_clock::time_point, kEvents> events_{};
  std::uint32_t next_event_ = 0;
};

}  // namespace triforce::reference
