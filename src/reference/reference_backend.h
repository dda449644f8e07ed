// The oracle: every operation in plain loops with double arithmetic, one thread, no vector code.
// Independent of the other backends; op tests and `selftest` compare against it.
#pragma once
#include <memory>
#include <string>

#include "core/host_backend.h"

namespace triforce {

// Activations f32; weights and KV rows are rounded to their dtype when stored, and with bf16
// weights the inputs of linear() are rounded to bf16. KV rows are plain: [capacity][head_dim] per
// head, with capacities and row moves checked against `kv_granule` rows. Bits of a row never depend
// on the rows computed with it.
class ReferenceBackend : public HostBackend {
 public:
  explicit ReferenceBackend(int kv_granule = 8);

  std::string description() const override;
  Bandwidths measure_bandwidths() override {
    TF_CHECK(false, "the reference backend has no speed");
    return {};
  }
  std::int64_t scratch_bytes(const ScratchShape&) const override { return 0; }  // plain loops

 protected:
  std::int64_t do_matrix_bytes(std::int64_t rows, std::int64_t cols,
                               WeightFormat format) const override;
  void do_set_rows(Matrix& m, std::int64_t row_begin, TensorView src) override;

  void do_random_values(TensorView out, const DrawKey& key, std::int64_t first,
                        double scale) override;
  void do_embed(TensorView tokens, const Matrix& table, TensorView out) override;
  void do_rms_norm(TensorView x, TensorView w, float eps, TensorView out) override;
  void do_head_norm(TensorView x, TensorView w, float eps) override;
  void do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                 RowPath path) override;
  void append_rows(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                   const KvView& kv) override;
  void do_attention(TensorView q, std::span<const KvView> sequences, const RopeView& rope,
                    TensorView out, std::span<const TensorView> mass, int chunk,
                    RowPath path) override;
  void do_swiglu(TensorView gate_up, TensorView out) override;
  void do_add_parts(TensorView parts, TensorView x) override;
  void do_to_probs(std::span<const ProbsRequest> requests, const SamplingParams& params) override;

  void do_score_chunks(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                       TensorView scores, ChunkRule rule) override;
  void do_top_chunks(TensorView scores, TensorView ids) override;
  void do_gather_chunks(const KvView& src, TensorView ids, int chunk, const KvView& dst,
                        const ExpandedKeys& expanded) override;
  void do_read_keys(const KvView& src, std::int64_t row, std::int64_t count, const RopeView& rope,
                    TensorView out) override;
  void do_mean_keys(const KvView& src, int chunk, std::int64_t first, std::int64_t count,
                    const KvView& dst) override;
  void do_expand_keys(const LowRankKeys& keys, TensorView ids, int chunk, std::int64_t first,
                      const RopeView& rope, const KvView& dst) override;
  void do_copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                    std::int64_t dst_row, std::int64_t count, Queue queue) override;
  void do_quantise_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                        std::int64_t group, std::int64_t count) override;
};

std::unique_ptr<Backend> make_reference_backend(int kv_granule = 8);

}  // namespace triforce
