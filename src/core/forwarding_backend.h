// A backend that hands every call to another one; tests and the self-test override what they study.
#pragma once
#include "triforce/backend.h"

namespace triforce {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& to) : to_(to) {}

  std::string description() const override { return to_.description(); }
  Allocator& allocator() override { return to_.allocator(); }
  Place place() const override { return to_.place(); }
  DType activation_dtype() const override { return to_.activation_dtype(); }
  std::int64_t prefill_rows() const override { return to_.prefill_rows(); }
  int kv_granule() const override { return to_.kv_granule(); }
  std::optional<std::int64_t> available_bytes() const override { return to_.available_bytes(); }
  void reserve_memory(std::int64_t bytes) override { to_.reserve_memory(bytes); }
  Bandwidths measure_bandwidths() override { return to_.measure_bandwidths(); }
  void reserve(const ScratchShape& shape) override { to_.reserve(shape); }
  std::int64_t scratch_bytes(const ScratchShape& shape) const override {
    return to_.scratch_bytes(shape);
  }
  Matrix make_matrix(std::int64_t rows, std::int64_t cols, DType dtype, MemTag tag) override {
    return to_.make_matrix(rows, cols, dtype, tag);
  }
  std::int64_t matrix_bytes(std::int64_t rows, std::int64_t cols, DType dtype) const override {
    return to_.matrix_bytes(rows, cols, dtype);
  }
  void set_rows(Matrix& m, std::int64_t row_begin, TensorView src) override {
    to_.set_rows(m, row_begin, src);
  }
  void upload(TensorView dst, TensorView host_src) override { to_.upload(dst, host_src); }
  void download(TensorView host_dst, TensorView src) override { to_.download(host_dst, src); }
  void random_values(TensorView out, const DrawKey& key, std::int64_t first,
                     double scale) override {
    to_.random_values(out, key, first, scale);
  }
  void embed(TensorView tokens, TensorView table, TensorView out) override {
    to_.embed(tokens, table, out);
  }
  void rms_norm(TensorView x, TensorView w, float eps, TensorView out) override {
    to_.rms_norm(x, w, eps, out);
  }
  void linear(TensorView x, const Matrix& w, TensorView out, bool accumulate) override {
    to_.linear(x, w, out, accumulate);
  }
  void rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                   const KvView& kv) override {
    to_.rope_append(qkv, positions, rope, q, kv);
  }
  void attention(TensorView q, const KvView& kv, const RopeView& rope, TensorView out,
                 TensorView mass, int chunk) override {
    to_.attention(q, kv, rope, out, mass, chunk);
  }
  void swiglu(TensorView gate_up, TensorView out) override { to_.swiglu(gate_up, out); }
  void to_laws(TensorView logits, const LawParams& params, TensorView laws) override {
    to_.to_laws(logits, params, laws);
  }
  Token sample(TensorView law, const DrawKey& key, std::int64_t position,
               Acceptance acceptance) override {
    return to_.sample(law, key, position, acceptance);
  }
  Verdict judge(TensorView p, TensorView q, std::span<const Token> tokens, const DrawKey& key,
                std::int64_t position, const JudgeRule& rule) override {
    return to_.judge(p, q, tokens, key, position, rule);
  }
  void score_chunks(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                    TensorView scores) override {
    to_.score_chunks(q, kv, chunk, n_chunks, scores);
  }
  void top_chunks(TensorView scores, TensorView ids) override { to_.top_chunks(scores, ids); }
  void gather_chunks(const KvView& src, TensorView ids, int chunk, const KvView& dst) override {
    to_.gather_chunks(src, ids, chunk, dst);
  }
  void copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst, std::int64_t dst_row,
                 std::int64_t count) override {
    to_.copy_rows(src, src_row, dst, dst_row, count);
  }
  void copy(TensorView dst, TensorView src, Queue q) override { to_.copy(dst, src, q); }
  Event record(Queue q) override { return to_.record(q); }
  void wait(Queue q, Event e) override { to_.wait(q, e); }
  double elapsed_ms(Event a, Event b) override { return to_.elapsed_ms(a, b); }
  void synchronize() override { to_.synchronize(); }
  void replay(std::uint64_t key, const std::function<void()>& body) override {
    to_.replay(key, body);
  }

 private:
  Backend& to_;
};

}  // namespace triforce
