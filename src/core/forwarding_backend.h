// A backend that hands every call to another one; what derives from it overrides some of them.
#pragma once
#include <array>

#include "triforce/backend.h"

namespace triforce {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& to) : Backend(to.traits()), to_(to) {}

  std::string description() const override { return to_.description(); }
  Allocator& allocator() override { return to_.allocator(); }
  std::int64_t own_bytes(MemTag tag) const override { return to_.own_bytes(tag); }
  std::optional<std::int64_t> available_bytes() const override { return to_.available_bytes(); }
  void reserve_memory(std::int64_t bytes) override { to_.reserve_memory(bytes); }
  Bandwidths measure_bandwidths() override { return to_.measure_bandwidths(); }
  std::optional<double> measure_gemm_gflops(DType dtype) override {
    return to_.measure_gemm_gflops(dtype);
  }
  std::optional<FarRates> measure_far_rates(const FarShape& shape) override {
    return to_.measure_far_rates(shape);
  }
  std::int64_t scratch_bytes(const ScratchShape& shape) const override {
    return to_.scratch_bytes(shape);
  }
  std::uint64_t begin_lease(const ScratchShape& shape) override { return to_.begin_lease(shape); }
  void end_lease(std::uint64_t id) noexcept override { to_.end_lease(id); }
  std::uint32_t make_signal() override { return to_.make_signal(); }
  void drop_signal(std::uint32_t id) noexcept override { to_.drop_signal(id); }
  void set_signal(std::uint32_t id, Queue after) override { to_.set_signal(id, after); }
  void wait_signal(std::uint32_t id, Queue before) override { to_.wait_signal(id, before); }
  void join_host() override { to_.join_host(); }
  std::int64_t staging_bytes(const ScratchShape& shape) const override {
    return to_.staging_bytes(shape);
  }
  void synchronize() override { to_.synchronize(); }
  void replay(const PassKey& key, const std::function<void()>& body) override {
    to_.replay(key, body);
  }
  bool is_unrecorded(const PassKey& key) const override { return to_.is_unrecorded(key); }
  std::size_t recorded_passes() const override { return to_.recorded_passes(); }

 protected:
  // Says of itself what `traits` say.
  ForwardingBackend(Backend& to, const Traits& traits) : Backend(traits), to_(to) {}

  std::int64_t do_matrix_bytes(std::int64_t rows, std::int64_t cols,
                               WeightFormat format) const override {
    return to_.matrix_bytes(rows, cols, format);
  }
  void do_set_rows(Matrix& m, std::int64_t row_begin, TensorView src) override {
    to_.set_rows(m, row_begin, src);
  }
  void do_upload(TensorView dst, TensorView src) override { to_.upload(dst, src); }
  void do_download(TensorView host_dst, TensorView src) override { to_.download(host_dst, src); }
  void do_random_values(TensorView out, const DrawKey& key, std::int64_t first,
                        double scale) override {
    to_.random_values(out, key, first, scale);
  }
  void do_embed(TensorView tokens, const Matrix& table, TensorView out) override {
    to_.embed(tokens, table, out);
  }
  void do_rms_norm(TensorView x, TensorView w, float eps, TensorView out) override {
    to_.rms_norm(x, w, eps, out);
  }
  void do_head_norm(TensorView x, TensorView w, float eps) override { to_.head_norm(x, w, eps); }
  void do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                 RowPath path) override {
    to_.linear(x, w, out, accumulate, path);
  }
  void do_rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                      std::span<const KvView> sequences) override {
    to_.rope_append(qkv, positions, rope, q, sequences);
  }
  void do_attention(TensorView q, std::span<const KvView> sequences, const RopeView& rope,
                    TensorView out, std::span<const TensorView> mass, int chunk,
                    RowPath path) override {
    to_.attention(q, sequences, rope, out, mass, chunk, path);
  }
  void do_swiglu(TensorView gate_up, TensorView out) override { to_.swiglu(gate_up, out); }
  void do_clear(TensorView out) override { to_.clear(out); }
  void do_add_parts(TensorView parts, TensorView x) override { to_.add_parts(parts, x); }
  void do_to_probs(std::span<const ProbsRequest> requests, const SamplingParams& params) override {
    to_.to_probs(requests, params);
  }
  void do_sample(std::span<const SampleRequest> requests, Acceptance acceptance,
                 std::span<Token> out) override {
    to_.sample(requests, acceptance, out);
  }
  void do_verify(std::span<const VerifyRequest> requests, const VerifyRule& rule,
                 std::span<VerifyResult> out) override {
    to_.verify(requests, rule, out);
  }
  void do_score_chunks(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                       TensorView scores, ChunkRule rule) override {
    to_.score_chunks(q, kv, chunk, n_chunks, scores, rule);
  }
  void do_top_chunks(TensorView scores, TensorView ids) override { to_.top_chunks(scores, ids); }
  void do_gather_chunks(const KvView& src, TensorView ids, int chunk, const KvView& dst,
                        const ExpandedKeys& expanded) override {
    to_.gather_chunks(src, ids, chunk, dst, expanded);
  }
  void do_read_keys(const KvView& src, std::int64_t row, std::int64_t count, const RopeView& rope,
                    TensorView out) override {
    to_.read_keys(src, row, count, rope, out);
  }
  void do_mean_keys(const KvView& src, int chunk, std::int64_t first, std::int64_t count,
                    const KvView& dst) override {
    to_.mean_keys(src, chunk, first, count, dst);
  }
  void do_expand_keys(const LowRankKeys& keys, TensorView ids, int chunk, std::int64_t first,
                      const RopeView& rope, const KvView& dst) override {
    to_.expand_keys(keys, ids, chunk, first, rope, dst);
  }
  void do_copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                    std::int64_t dst_row, std::int64_t count, Queue queue) override {
    to_.copy_rows(src, src_row, dst, dst_row, count, queue);
  }
  void do_quantise_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                        std::int64_t group, std::int64_t count) override {
    to_.quantise_rows(src, src_row, dst, group, count);
  }
  void do_keep_rows(std::span<const KvView> caches, std::int64_t first,
                    std::span<const std::int16_t> from) override {
    to_.keep_rows(caches, first, from);
  }
  void do_copy(TensorView dst, TensorView src, Queue queue) override { to_.copy(dst, src, queue); }
  void do_record(std::size_t slot) override { events_[slot] = to_.record(); }
  double do_elapsed_ms(std::size_t a, std::size_t b) override {
    return to_.elapsed_ms(events_[a], events_[b]);
  }

 private:
  Backend& to_;
  std::array<Event, kEvents> events_{};
};

}  // namespace triforce
