// Tests: tests/cuda/backend_test.cpp, tests/backend/conformance_test.cpp
#include "cuda/cuda_backend.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/rounding.h"
#include "cuda/far_rates.h"
#include "cuda/fused_steps.h"
#include "cuda/gemm.h"
#include "cuda/graph_cache.h"
#include "cuda/host_attend.h"
#include "cuda/transfer.h"
#include "kernels/kernels.h"

namespace triforce {
namespace {

using namespace cuda;

// Tokens of a prefill pass: enough that GEMMs are bound by arithmetic and unpacking is 5% of them.
constexpr std::int64_t kPrefillRows = 4096;
// A row-major copy of part of a matrix for cuBLASLt: whole tiles of a GEMM, enough to keep the
// device busy.
constexpr std::int64_t kUnpackedBytes = std::int64_t{64} << 20, kUnpackedRows = 128;
// Left to what the driver takes while a program runs: code, recorded passes, libraries.
constexpr std::int64_t kDriverBytes = std::int64_t{384} << 20;
// Beyond the plan in a reserve: the rounding of allocations and the blocks that weights come in.
constexpr std::int64_t kReserveSlack = std::int64_t{16} << 20;
// Tokens of one sample(); results of one verify() take less.
constexpr std::int64_t kDrawnBytes =
    static_cast<std::int64_t>(kMaxSequences * kMaxProposals * sizeof(Token));
static_assert(kMaxSequences * sizeof(VerifyResult) <= kDrawnBytes);
// KV heads of one attention; configurations have at most so many.
constexpr std::int64_t kMaxHeads = 1024;

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  TF_CUDA(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

// Rows of a matrix of `cols` columns that are unpacked at a time.
std::int64_t unpacked_rows(std::int64_t cols) {
  const std::int64_t rows = kUnpackedBytes / (cols * size_of(DType::kF16));
  return std::max<std::int64_t>(1, rows / kUnpackedRows) * kUnpackedRows;
}

class CudaBackend final : public Backend, public DeviceQueue {
 public:
  explicit CudaBackend(const CudaOptions& options)
      : Backend({.place = Place::kDevice,
                 .activation = options.dtype,
                 .prefill_rows = kPrefillRows,
                 .kv_granule = kernels::kKvGranule,
                 .head_dim_step = 64,  // what the kernels are built for: 64 and 128
                 .max_head_dim = 128,
                 .formats = Formats::kActivation,
                 .records_passes = options.replay,
                 .shares_host_memory = shares_host_memory(select(options))}),
        device_(options.device),
        host_available_(options.host_available),
        multiprocessors_(attribute(cudaDevAttrMultiProcessorCount, device_)),
        allocator_(device_),
        compute_(make_stream()),
        copy_(make_stream()),
        transfer_(allocator_, compute_.get(), wait_),
        jobs_(allocator_, kernels::kJobBytes, Place::kPinned, MemTag::kStaging),
        drawn_(allocator_, kDrawnBytes, Place::kPinned, MemTag::kStaging),
        arrivals_(allocator_, kMaxHeads * static_cast<std::int64_t>(sizeof(unsigned)),
                  Place::kDevice, MemTag::kWorkspace) {
    kernels::forget_devices();
    graphs_.set_enabled(options.replay);
    allocator_.set_before_release([this] {
      try {
        steps_.finish(compute_.get());
      } catch (const Error&) {  // of the device, whose next call says so again
      }
    });
    if (options.host_attention != nullptr) host_.emplace(options.host_attention, wait_);
    for (EventHandle& e : events_) e = make_event(true);
    if (options.cublas_lt) lt_ = CublasLt::open();
    if (lt_ != nullptr) gemm_.emplace(allocator_, lt_);
    for (const MemTag tag : {MemTag::kWorkspace, MemTag::kStaging}) {
      own_bytes_[static_cast<std::size_t>(tag)] = allocator_.ledger(tag).live_bytes;
    }
  }
  ~CudaBackend() override { static_cast<void>(cudaDeviceSynchronize()); }

  std::string description() const override {
    cudaDeviceProp p{};
    TF_CUDA(cudaGetDeviceProperties(&p, device_));
    return fmt::format("cuda:{} {}, sm_{}{}, {} multiprocessors{}, prefill GEMMs by {}", device_,
                       p.name, p.major, p.minor, multiprocessors_,
                       traits().shares_host_memory ? " in the host's memory" : "",
                       lt_ ? "cuBLASLt " + lt_->version() : "own kernels (no cuBLASLt)");
  }
  Allocator& allocator() override { return allocator_; }
  std::int64_t own_bytes(MemTag tag) const override {
    return own_bytes_[static_cast<std::size_t>(tag)];
  }

  std::optional<std::int64_t> available_bytes() const override {
    const std::int64_t bytes = free_memory(device_, host_available_) + allocator_.idle_bytes();
    return std::max<std::int64_t>(0, bytes - kDriverBytes);
  }
  void reserve_memory(std::int64_t bytes) override { allocator_.reserve(bytes + kReserveSlack); }
  Bandwidths measure_bandwidths() override;
  std::optional<FarRates> measure_far_rates(const FarShape& shape) override {
    TF_CHECK(host_ && scratch().empty(),
             "rates of bus and host: expected a host that computes "
             "attention, and no lease");
    return cuda::measure_far_rates(device_, copy_.get(), host_->attention(), activation_dtype(),
                                   shape);
  }

  std::int64_t scratch_bytes(const ScratchShape& s) const override {
    std::int64_t bytes = 0;
    if (s.heads > 0 && s.kv_heads > 0) {
      bytes = kernels::max_attention_bytes(multiprocessors_, s.most_exact_rows(), s.heads,
                                           s.kv_heads, s.head_dim, s.context, s.chunk_size > 0);
    }
    if (s.chunk_size > 0) {
      bytes = std::max(bytes, kernels::top_chunks_bytes(s.kv_heads, s.context / s.chunk_size));
    }
    if (gemm_ && s.rows > kMaxBatchInvariantRows && s.max_width > 0) {
      // No part has more rows or columns than the widest layer.
      const std::int64_t row = s.max_width * size_of(activation_dtype());
      bytes = std::max(bytes,
                       std::min(std::max(kUnpackedBytes, kUnpackedRows * row), s.max_width * row));
    }
    return bytes;
  }

  std::uint32_t make_signal() override;
  void drop_signal(std::uint32_t id) noexcept override { signals_[id] = {}; }
  void set_signal(std::uint32_t id, Queue after) override {
    TF_CUDA(cudaEventRecord(signals_[id].get(), stream_of(after)));
  }
  void wait_signal(std::uint32_t id, Queue before) override {
    TF_CUDA(cudaStreamWaitEvent(stream_of(before), signals_[id].get()));
  }
  void synchronize() override {
    steps_.finish(compute_.get());
    for (const Stream* s : {&compute_, &copy_}) wait_.for_stream(s->get());
    if (!host_) return;
    host_->synchronize();
    host_->rethrow();
  }
  cudaStream_t compute_stream() const override { return stream(); }
  HostWait& host_wait() override { return wait_; }
  std::int64_t staging_bytes(const ScratchShape& s) const override {
    return host_ ? host_->bytes(s) : 0;
  }
  void join_host() override { host_part().join(stream()); }
  void replay(const PassKey& key, const std::function<void()>& body) override {
    settle_weights();  // not while it is recorded
    graphs_.run(key, stream(), [&] { steps_.finish_after(body, compute_.get()); });
  }
  bool is_unrecorded(const PassKey& key) const override { return graphs_.is_unrecorded(key); }
  std::size_t recorded_passes() const override { return graphs_.recorded(); }

 protected:
  std::int64_t do_matrix_bytes(std::int64_t rows, std::int64_t cols,
                               WeightFormat format) const override {
    return kernels::packed_bytes(rows, cols, format);
  }
  void do_set_rows(Matrix& m, std::int64_t row_begin, TensorView src) override {
    weights_written_ = true;
    transfer_.for_each_piece(src, [&](const TensorView& piece, std::int64_t first) {
      kernels::pack_rows(m, row_begin + first, piece, stream());
    });
  }
  void do_upload(TensorView dst, TensorView src) override {
    steps_.finish(compute_.get());
    transfer_.upload(dst, src);
  }
  void do_download(TensorView host_dst, TensorView src) override {
    steps_.finish(compute_.get());
    transfer_.download(host_dst, src);
  }
  void do_random_values(TensorView out, const DrawKey& key, std::int64_t first,
                        double scale) override {
    kernels::random_values(out, key, first, scale, stream());
  }

  void do_embed(TensorView tokens, const Matrix& table, TensorView out) override {
    kernels::embed(tokens, kernels::packed(table), out, stream());
  }
  void do_rms_norm(TensorView x, TensorView w, float eps, TensorView out) override {
    kernels::rms_norm(x, w, eps, out, stream());
  }
  void do_head_norm(TensorView x, TensorView w, float eps) override {
    kernels::head_norm(x, w, eps, stream());
  }
  void do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                 RowPath path) override;
  void do_rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                      std::span<const KvView> sequences) override {
    steps_.rope_append(qkv, positions, rope, q, sequences, compute_.get());
  }
  void do_attention(TensorView q, std::span<const KvView> sequences, const RopeView& rope,
                    TensorView out, std::span<const TensorView> mass, int chunk,
                    RowPath path) override;
  void attend(TensorView q, const kernels::KvLanes& lanes, const RopeView& rope, TensorView out,
              std::span<const TensorView> mass, int chunk);
  void do_swiglu(TensorView gate_up, TensorView out) override {
    steps_.swiglu(gate_up, out, compute_.get());
  }
  void do_clear(TensorView out) override {
    TF_CUDA(cudaMemsetAsync(out.data, 0, static_cast<std::size_t>(out.bytes()), stream()));
  }
  void do_add_parts(TensorView parts, TensorView x) override {
    kernels::add_parts(parts, x, stream());
  }

  void do_to_probs(std::span<const ProbsRequest> requests, const SamplingParams& params) override {
    steps_.to_probs(requests, params, compute_.get());
  }
  void do_sample(std::span<const SampleRequest> requests, Acceptance acceptance,
                 std::span<Token> out) override {
    auto* const tokens = static_cast<Token*>(drawn_.data());
    steps_.sample(requests, acceptance, jobs_.data(), tokens, compute_.get());
    wait();
    std::copy_n(tokens, out.size(), out.begin());
  }
  void do_verify(std::span<const VerifyRequest> requests, const VerifyRule& rule,
                 std::span<VerifyResult> out) override {
    auto* const results = static_cast<VerifyResult*>(drawn_.data());
    kernels::verify(requests, rule, jobs_.data(), results, stream());
    wait();
    std::copy_n(results, out.size(), out.begin());
  }

  void do_score_chunks(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                       TensorView scores, ChunkRule rule) override {
    if (kv.on_host) {
      host_part().score(q, kv, chunk, n_chunks, scores, rule, stream());
      return;
    }
    kernels::score_chunks(q, kv, chunk, n_chunks, scores, rule, stream());
  }
  void do_top_chunks(TensorView scores, TensorView ids) override {
    need(kernels::top_chunks_bytes(static_cast<int>(scores.shape[0]), scores.shape[1]));
    kernels::top_chunks(scores, ids, scratch().data(), stream());
  }
  void do_gather_chunks(const KvView& src, TensorView ids, int chunk, const KvView& dst,
                        const ExpandedKeys& expanded) override {
    kernels::gather_chunks(src, ids, chunk, dst, expanded, stream());
  }
  void do_read_keys(const KvView& src, std::int64_t row, std::int64_t count, const RopeView& rope,
                    TensorView out) override {
    kernels::read_keys(src, row, count, rope, out, stream());
  }
  void do_mean_keys(const KvView& src, int chunk, std::int64_t first, std::int64_t count,
                    const KvView& dst) override {
    kernels::mean_keys(src, chunk, first, count, dst, stream());
  }
  void do_expand_keys(const LowRankKeys& keys, TensorView ids, int chunk, std::int64_t first,
                      const RopeView& rope, const KvView& dst) override {
    kernels::expand_keys(keys, ids, chunk, first, rope, dst, stream());
  }
  void do_copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                    std::int64_t dst_row, std::int64_t count, Queue queue) override {
    kernels::copy_rows(src, src_row, dst, dst_row, count, stream_of(queue));
  }
  void do_quantise_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                        std::int64_t group, std::int64_t count) override {
    kernels::quantise_rows(src, src_row, dst, group, count, stream());
  }
  void do_keep_rows(std::span<const KvView> caches, std::int64_t first,
                    std::span<const std::int16_t> from) override {
    while (!caches.empty()) {
      const std::size_t n = std::min(caches.size(), kernels::kKeptCaches);
      kernels::keep_rows(caches.first(n), first, from, stream());
      caches = caches.subspan(n);
    }
  }
  void do_copy(TensorView dst, TensorView src, Queue queue) override;
  void do_record(std::size_t slot) override { steps_.record(events_[slot].get(), compute_.get()); }
  void do_forget(std::uint64_t id) noexcept override { graphs_.forget(id); }
  void do_scratch_moved() noexcept override { graphs_.clear(); }  // they point to the old one
  void do_stage(const ScratchShape& all) override {
    if (host_) host_->stage(allocator_, all);
  }
  double do_elapsed_ms(std::size_t a, std::size_t b) override {
    float ms = 0;
    steps_.finish(compute_.get());  // with the events that wait for it
    wait_.for_event(events_[b].get());
    TF_CUDA(cudaEventElapsedTime(&ms, events_[a].get(), events_[b].get()));
    return static_cast<double>(ms);
  }

 private:
  static int select(const CudaOptions& options) {
    if (options.dtype != DType::kF16 && options.dtype != DType::kBF16) {
      throw_usage("--dtype: expected f16 or bf16 on a CUDA device, found {}; --device cpu runs f32",
                  to_string(options.dtype));
    }
    std::string reason;
    if (count_devices(&reason) == 0) throw Error(ExitCode::kDevice, "NoCuda", reason);
    TF_CUDA(cudaSetDevice(options.device));
    return options.device;
  }
  // The compute stream with all calls so far in it.
  cudaStream_t stream() const {
    steps_.finish(compute_.get());
    return compute_.get();
  }
  // Products fetch weights before the kernels before them have ended.
  void settle_weights() {
    if (std::exchange(weights_written_, false)) wait_.for_stream(stream());
  }
  cudaStream_t stream_of(Queue queue) const {
    return queue == Queue::kCopy ? copy_.get() : stream();
  }
  void wait() {
    wait_.for_stream(stream());
    if (host_) host_->rethrow();
  }
  HostAttend& host_part() {
    TF_CHECK(host_, "rows on the host, which has no part in this backend");
    return *host_;
  }
  void need(std::int64_t bytes) const {
    const auto leased = static_cast<std::int64_t>(scratch().size());
    TF_CHECK(bytes <= leased, "{} bytes of scratch, {} leased", bytes, leased);
  }

  int device_;
  HostAvailable host_available_;
  int multiprocessors_;
  CudaAllocator allocator_;
  Stream compute_, copy_;
  mutable FusedSteps steps_;  // what is not in compute_ yet
  HostWait wait_;
  Transfer transfer_;
  std::shared_ptr<const CublasLt> lt_;
  std::optional<Gemm> gemm_;  // with lt_
  std::array<std::int64_t, static_cast<std::size_t>(MemTag::kCount)> own_bytes_{};
  std::optional<HostAttend> host_;
  GraphCache graphs_;
  bool weights_written_ = false;  // since the host last waited
  Buffer jobs_;                   // what is drawn and verified (kernels::sample)
  Buffer drawn_;                  // the results
  Buffer arrivals_;               // of attention: zeros between its launches
  std::array<EventHandle, kEvents> events_;
  std::vector<EventHandle> signals_;  // empty: dropped
};

std::uint32_t CudaBackend::make_signal() {
  const auto empty =
      std::ranges::find_if(signals_, [](const EventHandle& e) { return e.get() == nullptr; });
  const auto id = static_cast<std::uint32_t>(empty - signals_.begin());
  if (empty == signals_.end()) signals_.emplace_back();
  signals_[id] = make_event(false);
  return id;
}

Backend::Bandwidths CudaBackend::measure_bandwidths() {
  constexpr int kRepetitions = 5, kBlocksPerMultiprocessor = 4;
  // Several times what the second-level cache holds, within what a plan leaves free. Reads are of
  // all of it, copies from one half to the other.
  constexpr std::size_t kMost = std::size_t{256} << 20;
  const std::size_t bytes =
      std::min(kMost, 4 * static_cast<std::size_t>(attribute(cudaDevAttrL2CacheSize, device_)));
  constexpr std::size_t kUploaded = std::size_t{64} << 20;
  CudaAllocator allocator(device_);  // its own, for what is not kept
  const Buffer all(allocator, static_cast<std::int64_t>(bytes), Place::kDevice, MemTag::kWorkspace);
  const Buffer sum(allocator, sizeof(std::uint32_t), Place::kDevice, MemTag::kWorkspace);
  const auto best_gbs = [&](double moved, const auto& move) {
    move();
    double best = 0;
    for (int i = 0; i < kRepetitions; ++i) {
      const Event begin = record();
      move();
      best = std::max(best, moved / 1e6 / elapsed_ms(begin, record()));
    }
    return best;
  };
  Bandwidths out;
  out.read_gbs = best_gbs(static_cast<double>(bytes), [&] {
    kernels::read_all(all.data(), static_cast<std::int64_t>(bytes),
                      kBlocksPerMultiprocessor * multiprocessors_,
                      static_cast<std::uint32_t*>(sum.data()), stream());
  });
  out.copy_gbs = best_gbs(static_cast<double>(bytes), [&] {
    TF_CUDA(cudaMemcpyAsync(all.data(), static_cast<const std::byte*>(all.data()) + bytes / 2,
                            bytes / 2, cudaMemcpyDeviceToDevice, stream()));
  });
  const std::size_t uploaded = std::min(kUploaded, bytes);
  const Buffer pinned(allocator, static_cast<std::int64_t>(uploaded), Place::kPinned,
                      MemTag::kWorkspace);
  out.upload_gbs = best_gbs(static_cast<double>(uploaded), [&] {
    TF_CUDA(cudaMemcpyAsync(all.data(), pinned.data(), uploaded, cudaMemcpyHostToDevice, stream()));
  });
  return out;
}

void CudaBackend::do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                            RowPath path) {
  settle_weights();
  if (x.shape[0] <= kMaxBatchInvariantRows) {
    steps_.linear(x, w, out, accumulate, compute_.get());
    return;
  }
  if (path == RowPath::kInvariant || !gemm_ || w.format.is_quantised()) {
    for (std::int64_t begin = 0; begin < x.shape[0]; begin += kernels::kMaxLinearRows) {
      const std::int64_t rows = std::min(kernels::kMaxLinearRows, x.shape[0] - begin);
      kernels::linear(x.rows(begin, rows), kernels::packed(w), out.rows(begin, rows), accumulate,
                      stream());
    }
    return;
  }
  if (w.bias) {  // so that a sum is rounded once
    kernels::set_bias(w.bias.view().as<const float>(), out, accumulate, stream());
    accumulate = true;
  }
  const std::int64_t max_rows = unpacked_rows(w.cols);
  for (std::int64_t begin = 0; begin < w.rows; begin += max_rows) {
    const std::int64_t rows = std::min(max_rows, w.rows - begin);
    const TensorView part = make_view(scratch().data(), w.format.type, {rows, w.cols});
    need(part.bytes());
    kernels::unpack_rows(w, begin, part, stream());
    gemm_->run(x, part, out.slice(1, begin, rows), accumulate, stream());
  }
}

void CudaBackend::do_attention(TensorView q, std::span<const KvView> sequences,
                               const RopeView& rope, TensorView out,
                               std::span<const TensorView> mass, int chunk, RowPath path) {
  const KvView& kv = sequences.front();
  if (kv.on_host) {
    host_part().queue(q, sequences, out, mass, chunk, stream());
    return;
  }
  const std::int64_t each = q.shape[0] / static_cast<std::int64_t>(sequences.size());
  if (path == RowPath::kInvariant || each <= kMaxBatchInvariantRows) {
    kernels::for_each_lanes(
        sequences, q.shape[0], [&](const kernels::KvLanes& lanes, auto first, auto n) {
          const auto of_lanes =
              mass.first(mass.empty() ? 0 : static_cast<std::size_t>(lanes.count));
          attend(q.rows(first, n), lanes, rope, out.rows(first, n), of_lanes, chunk);
          mass = mass.subspan(of_lanes.size());
        });
    return;
  }
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const std::int64_t first = static_cast<std::int64_t>(s) * each;
    kernels::attention_prefill(q.rows(first, each), sequences[s], rope, out.rows(first, each),
                               stream());
  }
}

void CudaBackend::attend(TensorView q, const kernels::KvLanes& lanes, const RopeView& rope,
                         TensorView out, std::span<const TensorView> mass, int chunk) {
  const KvView& kv = lanes.kv;
  const std::int64_t split =
      kernels::split_tokens(multiprocessors_, kv.layer_heads, kernels::whole_capacity(kv));
  TF_CHECK(lanes.count * kv.kv_heads <= kMaxHeads, "attention of {} x {} KV heads, at most {}",
           lanes.count, kv.kv_heads, kMaxHeads);
  kernels::attention(q, lanes, rope, out, mass, chunk, split, scratch(),
                     static_cast<unsigned*>(arrivals_.data()), stream());
}

void CudaBackend::do_copy(TensorView dst, TensorView src, Queue queue) {
  const auto bytes = static_cast<std::size_t>(src.bytes());
  if (dst.is_contiguous() && src.is_contiguous()) {
    TF_CUDA(cudaMemcpyAsync(dst.data, src.data, bytes, cudaMemcpyDefault, stream_of(queue)));
    return;
  }
  const auto pitch = [](const TensorView& v) {
    return static_cast<std::size_t>(v.stride[0] * size_of(v.dtype));
  };
  const auto rows = static_cast<std::size_t>(src.shape[0]);
  TF_CUDA(cudaMemcpy2DAsync(dst.data, pitch(dst), src.data, pitch(src), bytes / rows, rows,
                            cudaMemcpyDefault, stream_of(queue)));
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace triforce
