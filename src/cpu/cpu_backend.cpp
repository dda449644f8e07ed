#include "cpu/cpu_backend.h"

#include <array>
#include <chrono>
#include <cstring>

#include "core/host_allocator.h"
#include "cpu/convert.h"
#include "cpu/gemm.h"
#include "cpu/kv_ops.h"
#include "cpu/laws.h"
#include "cpu/linear.h"
#include "cpu/ops.h"
#include "cpu/probe.h"
#include "triforce/sampling.h"

namespace triforce {
namespace {

// Moments that can be asked for at a time; recording more overwrites the oldest.
constexpr std::uint32_t kEvents = 4096;

LawRows law_rows(const TensorView& laws) {
  TF_CHECK(laws.rank == 2 && laws.dtype == DType::kF32, "laws: expected f32 of rank 2");
  return {laws.as<float>(), laws.shape[1], laws.stride[0]};
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(cpu::Isa isa, int threads) {
    context_.isa = isa;
    context_.threads = threads;
  }

  std::string description() const override {
    return fmt::format("cpu {}, {} thread{}", cpu::to_string(context_.isa), context_.threads,
                       context_.threads == 1 ? "" : "s");
  }
  Allocator& allocator() override { return allocator_; }
  Place place() const override { return Place::kHost; }
  DType activation_dtype() const override { return DType::kF32; }
  // The operands of a GEMM then stay in the second-level cache.
  std::int64_t prefill_rows() const override { return 512; }
  int kv_granule() const override { return cpu::kv_granule(); }

  Bandwidths measure_bandwidths() override {
    return {cpu::measure_read_bandwidth_gbs(context_), {}, {}};
  }

  void reserve(const ScratchShape& shape) override {
    reserved_.grow(shape);
    const std::int64_t bytes = std::max(scratch_bytes(reserved_), scratch_bytes(shape));
    if (bytes <= scratch_.bytes()) return;
    scratch_ = Buffer();  // not both at a time
    scratch_ = Buffer(allocator_, bytes, Place::kHost, MemTag::kWorkspace);
    context_.scratch = {static_cast<std::byte*>(scratch_.data()), static_cast<std::size_t>(bytes)};
  }

  std::int64_t scratch_bytes(const ScratchShape& s) const override {
    return std::max({cpu::linear_scratch_bytes(s.rows, s.widest),
                     cpu::laws_scratch_bytes(s.vocab, context_.threads),
                     cpu::kv_scratch_bytes(s, context_.threads)});
  }

  Matrix make_matrix(std::int64_t rows, std::int64_t cols, DType dtype, MemTag tag) override {
    return {Buffer(allocator_, cpu::packed_bytes(rows, cols, dtype), Place::kHost, tag), dtype,
            rows, cols};
  }
  std::int64_t matrix_bytes(std::int64_t rows, std::int64_t cols, DType dtype) const override {
    return cpu::packed_bytes(rows, cols, dtype);
  }
  void set_rows(Matrix& m, std::int64_t row_begin, TensorView src) override {
    cpu::pack_rows(context_, m, row_begin, src);
  }
  void upload(TensorView dst, TensorView host_src) override { cpu::convert_tensor(dst, host_src); }
  void download(TensorView host_dst, TensorView src) override {
    cpu::convert_tensor(host_dst, src);
  }

  void random_values(TensorView out, const DrawKey& key, std::int64_t first,
                     double scale) override {
    cpu::random_values(context_, out, key, first, scale);
  }

  void embed(TensorView tokens, TensorView table, TensorView out) override {
    cpu::embed(context_, tokens, table, out);
  }
  void rms_norm(TensorView x, TensorView w, float eps, TensorView out) override {
    cpu::rms_norm(context_, x, w, eps, out);
  }
  void linear(TensorView x, const Matrix& w, TensorView out, bool accumulate) override {
    cpu::linear(context_, gemm_, x, w, out, accumulate);
  }
  void rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                   const KvView& kv) override {
    cpu::rope_append(context_, qkv, positions, rope, q, kv);
  }
  void attention(TensorView q, const KvView& kv, const RopeView& rope, TensorView out,
                 TensorView mass, int chunk) override {
    cpu::attention(context_, q, kv, rope, out, mass, chunk);
  }
  void swiglu(TensorView gate_up, TensorView out) override { cpu::swiglu(context_, gate_up, out); }

  void to_laws(TensorView logits, const LawParams& params, TensorView laws) override {
    cpu::to_laws(context_, logits, params, laws);
  }
  Token sample(TensorView law, const DrawKey& key, std::int64_t position,
               Acceptance acceptance) override {
    TF_CHECK(law.dtype == DType::kF32 && law.numel() > 0 && law.is_contiguous(), "sample: a law");
    return sample_token({law.as<float>(), static_cast<std::size_t>(law.numel())}, key, position,
                        acceptance);
  }
  Verdict judge(TensorView p, TensorView q, std::span<const Token> tokens, const DrawKey& key,
                std::int64_t position, const JudgeRule& rule) override {
    const auto n = static_cast<std::int64_t>(tokens.size());
    TF_CHECK(p.shape[0] == n + 1 && (n == 0 || (q.shape[0] == n && q.shape[1] == p.shape[1])),
             "judge: {} tokens, p [{}, {}], q [{}, {}]", n, p.shape[0], p.shape[1], q.shape[0],
             q.shape[1]);
    for (const Token t : tokens) {
      TF_CHECK(t >= 0 && t < p.shape[1], "judge: token {} of {}", t, p.shape[1]);
    }
    return judge_proposals(law_rows(p), n == 0 ? LawRows{} : law_rows(q), tokens, key, position,
                           rule);
  }

  void score_chunks(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                    TensorView scores) override {
    cpu::score_chunks(context_, q, kv, chunk, n_chunks, scores);
  }
  void top_chunks(TensorView scores, TensorView ids) override {
    cpu::top_chunks(context_, scores, ids);
  }
  void gather_chunks(const KvView& src, TensorView ids, int chunk, const KvView& dst) override {
    cpu::gather_chunks(context_, src, ids, chunk, dst);
  }
  void copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst, std::int64_t dst_row,
                 std::int64_t count) override {
    cpu::copy_rows(context_, src, src_row, dst, dst_row, count);
  }

  void copy(TensorView dst, TensorView src, Queue /*q*/) override {
    TF_CHECK(dst.dtype == src.dtype && dst.numel() == src.numel(), "copy: {} {} to {} {}",
             src.numel(), to_string(src.dtype), dst.numel(), to_string(dst.dtype));
    if (dst.is_contiguous() && src.is_contiguous()) {
      if (src.numel() > 0) std::memmove(dst.data, src.data, static_cast<std::size_t>(src.bytes()));
    } else {
      cpu::convert_tensor(dst, src);
    }
  }

  Event record(Queue /*q*/) override {
    const Event event{next_event_++};
    moments_[event.id % kEvents] = Clock::now();
    return event;
  }
  void wait(Queue /*q*/, Event /*e*/) override {}  // every call has finished when it returns
  double elapsed_ms(Event a, Event b) override {
    for (const Event e : {a, b}) {
      TF_CHECK(e.id < next_event_ && next_event_ - e.id <= kEvents, "event {} of {}", e.id,
               next_event_);
    }
    return std::chrono::duration<double, std::milli>(moments_[b.id % kEvents] -
                                                     moments_[a.id % kEvents])
        .count();
  }
  void synchronize() override {}

  void replay(std::uint64_t /*key*/, const std::function<void()>& body) override { body(); }

 private:
  using Clock = std::chrono::steady_clock;

  HostAllocator allocator_;
  ScratchShape reserved_;  // the largest of each so far
  Buffer scratch_;
  cpu::Context context_;
  cpu::Gemm gemm_;
  std::array<Clock::time_point, kEvents> moments_{};
  std::uint32_t next_event_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  if (options.threads < 0) throw_usage("--threads: expected 0 or more, found {}", options.threads);
  if (options.isa.has_value()) {
    cpu::parse_isa(cpu::to_string(*options.isa));  // throws if this processor lacks it
    cpu::limit_gemm_isa(*options.isa);
  }
  return std::make_unique<CpuBackend>(options.isa.value_or(cpu::best_isa()),
                                      options.threads > 0 ? options.threads : omp_get_num_procs());
}

}  // namespace triforce
