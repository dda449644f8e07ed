#include "cpu/cpu_backend.h"

#include "core/host_backend.h"
#include "cpu/gemm.h"
#include "cpu/kv_ops.h"
#include "cpu/linear.h"
#include "cpu/ops.h"
#include "cpu/probe.h"
#include "cpu/probs.h"
#include "cpu/team.h"

namespace triforce {
namespace {

cpu::Workers make_workers(const CpuOptions& options) {
  if (options.threads < 0) throw_usage("--threads: expected 0 or more, found {}", options.threads);
  if (options.isa.has_value()) cpu::parse_isa(to_string(*options.isa));  // throws if it is missing
  const int threads = options.threads > 0 ? options.threads : cpu::team_size(omp_get_num_procs());
  cpu::expect_team(threads);
  return {.isa = options.isa.value_or(cpu::best_isa()), .threads = threads, .scratch = {}};
}

class CpuBackend final : public HostBackend {
 public:
  explicit CpuBackend(const cpu::Workers& workers)
      : HostBackend({.place = Place::kHost,
                     // At 1 to 32 rows f32 costs nothing beside the weights, and the answers
                     // agree with PyTorch's of f32.
                     .activation = DType::kF32,
                     // GEMMs of 256 to 512 rows keep their operands in the second-level cache.
                     .prefill_rows = 512,
                     .kv_granule = cpu::kKeyBlock,
                     .head_dim_step = 16,
                     .max_head_dim = cpu::kMaxHeadDim,
                     .formats = Formats::kStored}),
        workers_(workers) {}

  std::string description() const override {
    return fmt::format("cpu {}, {} thread{}", to_string(workers_.isa), workers_.threads,
                       workers_.threads == 1 ? "" : "s");
  }

  Bandwidths measure_bandwidths() override {
    return {cpu::measure_read_bandwidth_gbs(workers_), {}, {}};
  }

  std::optional<double> measure_gemm_gflops(DType dtype) override {
    if (workers_.isa == cpu::Isa::kScalar) return std::nullopt;  // its prefill is no GEMM
    const bool bf16 = dtype == DType::kBF16 && workers_.isa >= cpu::Isa::kAvx512Bf16;
    const double rate =
        cpu::measure_gemm_gflops(workers_, bf16 ? DType::kBF16 : DType::kF32, cpu::kRunGemmSeconds);
    return rate > 0 ? std::optional(rate) : std::nullopt;
  }

  std::int64_t scratch_bytes(const ScratchShape& s) const override {
    return std::max({cpu::linear_scratch_bytes(s.rows, s.max_width),
                     cpu::probs_scratch_bytes(s.vocab, workers_.threads),
                     cpu::kv_scratch_bytes(s, workers_.threads)});
  }

 protected:
  std::int64_t do_matrix_bytes(std::int64_t rows, std::int64_t cols,
                               WeightFormat format) const override {
    return cpu::packed_bytes(rows, cols, format);
  }
  void do_set_rows(Matrix& m, std::int64_t row_begin, TensorView src) override {
    cpu::pack_rows(workers_, m, row_begin, src);
  }
  void do_random_values(TensorView out, const DrawKey& key, std::int64_t first,
                        double scale) override {
    cpu::random_values(workers_, out, key, first, scale);
  }

  void do_embed(TensorView tokens, const Matrix& table, TensorView out) override {
    cpu::embed(workers_, tokens, table, out);
  }
  void do_rms_norm(TensorView x, TensorView w, float eps, TensorView out) override {
    cpu::rms_norm(workers_, x, w, eps, out);
  }
  void do_head_norm(TensorView x, TensorView w, float eps) override {
    cpu::head_norm(workers_, x, w, eps);
  }
  void do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                 RowPath path) override {
    cpu::linear(workers_, gemm_, x, w, out, accumulate, path);
    if (w.bias) cpu::add_bias(workers_, w.bias.view(), out);
  }
  void append_rows(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                   const KvView& kv) override {
    cpu::rope_append(workers_, qkv, positions, rope, q, kv);
  }
  void do_attention(TensorView q, std::span<const KvView> sequences, const RopeView& rope,
                    TensorView out, std::span<const TensorView> mass, int chunk,
                    RowPath path) override {
    cpu::attention(workers_, q, sequences, rope, out, mass, chunk, path);
  }
  void do_swiglu(TensorView gate_up, TensorView out) override {
    cpu::swiglu(workers_, gate_up, out);
  }
  void do_add_parts(TensorView parts, TensorView x) override { cpu::add_parts(workers_, parts, x); }
  void do_to_probs(std::span<const ProbsRequest> requests, const SamplingParams& params) override {
    cpu::to_probs(workers_, requests, params);
  }

  void do_score_chunks(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                       TensorView scores, ChunkRule rule) override {
    cpu::score_chunks(workers_, q, kv, chunk, n_chunks, scores, rule);
  }
  void do_top_chunks(TensorView scores, TensorView ids) override {
    cpu::top_chunks(workers_, scores, ids);
  }
  void do_gather_chunks(const KvView& src, TensorView ids, int chunk, const KvView& dst,
                        const ExpandedKeys& expanded) override {
    cpu::gather_chunks(workers_, src, ids, chunk, dst, expanded);
  }
  void do_read_keys(const KvView& src, std::int64_t row, std::int64_t count, const RopeView& rope,
                    TensorView out) override {
    cpu::read_keys(workers_, src, row, count, rope, out);
  }
  void do_mean_keys(const KvView& src, int chunk, std::int64_t first, std::int64_t count,
                    const KvView& dst) override {
    cpu::mean_keys(workers_, src, chunk, first, count, dst);
  }
  void do_expand_keys(const LowRankKeys& keys, TensorView ids, int chunk, std::int64_t first,
                      const RopeView& rope, const KvView& dst) override {
    cpu::expand_keys(workers_, keys, ids, chunk, first, rope, dst);
  }
  void do_copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                    std::int64_t dst_row, std::int64_t count, Queue /*queue*/) override {
    cpu::copy_rows(workers_, src, src_row, dst, dst_row, count);
  }
  void do_quantise_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                        std::int64_t group, std::int64_t count) override {
    cpu::quantise_rows(workers_, src, src_row, dst, group, count);
  }

  void do_scratch_moved() noexcept override { workers_.scratch = scratch(); }

 private:
  cpu::Workers workers_;
  cpu::Gemm gemm_;
};

class CpuHostAttention final : public HostAttention {
 public:
  explicit CpuHostAttention(const cpu::Workers& workers) : workers_(workers) {}

  std::int64_t scratch_bytes(const Backend::ScratchShape& shape) const override {
    return cpu::attention_scratch_bytes(shape, workers_.threads);
  }

 protected:
  void do_attend(TensorView q, const KvView& kv, TensorView out, TensorView mass,
                 int chunk) override {
    cpu::Workers workers = workers_;
    workers.scratch = scratch();
    cpu::attention(workers, q, std::span(&kv, 1), {}, out,
                   std::span(&mass, mass.data != nullptr ? 1 : 0), chunk, RowPath::kInvariant);
  }
  void do_score(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks, TensorView scores,
                ChunkRule rule) override {
    cpu::score_chunks(workers_, q, kv, chunk, n_chunks, scores, rule);
  }

 private:
  cpu::Workers workers_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  const cpu::Workers workers = make_workers(options);
  cpu::limit_gemm_isa(workers.isa);
  return std::make_unique<CpuBackend>(workers);
}

std::unique_ptr<HostAttention> make_host_attention(const CpuOptions& options) {
  return std::make_unique<CpuHostAttention>(make_workers(options));
}

}  // namespace triforce
