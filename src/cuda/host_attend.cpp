#include "cuda/host_attend.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace triforce::cuda {
namespace {

constexpr std::int64_t kNumbers = kMaxSequences * (2 + kMaxTreeRows);

// Elements of the buffers, f32.
struct Sizes {
  std::int64_t q = 0, mass = 0;
};
Sizes sizes_of(const Backend::ScratchShape& s) {
  const std::int64_t chunks = s.chunk_size > 0 ? s.context / s.chunk_size : 0;
  return {s.most_exact_rows() * s.host_heads * s.head_dim, s.host_kv_heads * chunks};
}

Backend::ScratchShape shape_of_call(Backend::ScratchShape s) {
  s.rows = s.most_exact_rows();
  s.heads = s.host_heads;
  s.kv_heads = s.host_kv_heads;
  return s;
}

// [T, h, d] as [T, h d]; [h, d] as it is.
TensorView flat(TensorView q) {
  if (q.rank == 2) return q;
  TensorView v = make_view(q.data, q.dtype, {q.shape[0], q.shape[1] * q.shape[2]});
  v.stride[0] = q.stride[0];
  return v;
}

}  // namespace

std::int64_t HostAttend::bytes(const Backend::ScratchShape& shape) const {
  if (shape.host_heads == 0) return 0;
  const Sizes n = sizes_of(shape);
  return (kNumbers + 2 * n.q + n.mass) * size_of(DType::kF32) +
         attention_->scratch_bytes(shape_of_call(shape));
}

void HostAttend::stage(CudaAllocator& allocator, const Backend::ScratchShape& shape) {
  for (Buffer* b : {&numbers_, &q_, &out_, &mass_}) *b = Buffer();
  attention_->release();
  if (shape.host_heads == 0) return;
  const auto take = [&](std::int64_t elements) {
    return Buffer(allocator, elements * size_of(DType::kF32), Place::kPinned, MemTag::kStaging);
  };
  const Sizes n = sizes_of(shape);
  numbers_ = take(kNumbers);
  q_ = take(n.q);
  out_ = take(n.q);
  mass_ = take(n.mass);
  results_.reserve(1 + kMaxSequences);
  attention_->reserve(allocator, shape_of_call(shape));
}

TensorView HostAttend::stage_queries(TensorView q, cudaStream_t stream) {
  TF_CHECK(results_.empty(), "work for the host before the last one was joined");
  TF_CHECK(q.numel() * size_of(DType::kF32) <= q_.bytes(), "{} elements of queries on the host",
           q.numel());
  const TensorView staged =
      q.rank == 3 ? make_view(q_.data(), DType::kF32, {q.shape[0], q.shape[1], q.shape[2]})
                  : make_view(q_.data(), DType::kF32, {q.shape[0], q.shape[1]});
  kernels::convert(flat(q), flat(staged), stream);
  return staged;
}

TensorView HostAttend::stage_mass(TensorView to) {
  const std::int64_t n = to.shape[0], m = to.shape[1];
  const TensorView v =
      make_view(static_cast<float*>(mass_.data()) + mass_used_, DType::kF32, {n, m});
  mass_used_ += n * m;
  TF_CHECK(mass_used_ * size_of(DType::kF32) <= mass_.bytes(),
           "{} chunks of {} KV heads on the host", m, n);
  results_.push_back({v, to});
  return v;
}

HostAttend::Job& HostAttend::next_job() {
  if (queued_ - ended_.load() == jobs_.size()) synchronize();
  Job& job = jobs_[queued_++ % jobs_.size()];
  job = Job();
  job.self = this;
  return job;
}

void HostAttend::start(std::uint64_t jobs, cudaStream_t stream) {
  TF_CUDA(cudaEventRecord(ready_.get(), stream));
  TF_CUDA(cudaStreamWaitEvent(stream_.get(), ready_.get()));
  for (std::uint64_t i = queued_ - jobs; i < queued_; ++i) {
    TF_CUDA(cudaLaunchHostFunc(
        stream_.get(),
        [](void* argument) {
          const Job& mine = *static_cast<const Job*>(argument);
          mine.self->run(mine);
        },
        &jobs_[i % jobs_.size()]));
  }
  TF_CUDA(cudaEventRecord(finished_.get(), stream_.get()));
}

void HostAttend::run(const Job& job) noexcept {
  try {
    if (job.scores) {
      attention_->score(job.q, job.kv, job.chunk, job.mass.shape[1], job.mass, *job.scores);
    } else {
      attention_->attend(job.q, job.kv, job.out, job.mass, job.chunk);
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  ++ended_;
}

void HostAttend::queue(TensorView q, std::span<const KvView> sequences, TensorView out,
                       std::span<const TensorView> mass, int chunk, cudaStream_t stream) {
  const TensorView queries = stage_queries(q, stream);
  const TensorView results =
      make_view(out_.data(), DType::kF32, {q.shape[0], q.shape[1] * q.shape[2]});
  results_.push_back({results, out});
  auto* number = static_cast<std::int32_t*>(numbers_.data());
  const auto bring = [&](const std::int32_t*& from, std::size_t count) {
    if (from == nullptr) return;
    TF_CUDA(cudaMemcpyAsync(number, from, count * sizeof(std::int32_t), cudaMemcpyDeviceToHost,
                            stream));
    from = std::exchange(number, number + count);
  };
  const std::int64_t rows = q.shape[0] / static_cast<std::int64_t>(sequences.size());
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    Job& job = next_job();
    const std::int64_t first = static_cast<std::int64_t>(s) * rows;
    job.q = queries.rows(first, rows);
    job.out = results.rows(first, rows);
    if (!mass.empty()) job.mass = stage_mass(mass[s]);
    job.kv = sequences[s];
    job.chunk = chunk;
    bring(job.kv.length, 1);
    bring(job.kv.appended, 1);
    bring(job.kv.parents, static_cast<std::size_t>(job.kv.tree_rows));
  }
  start(sequences.size(), stream);
}

void HostAttend::score(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                       TensorView scores, ChunkRule rule, cudaStream_t stream) {
  Job& job = next_job();
  job.scores = rule;
  job.q = stage_queries(q, stream);
  job.kv = kv;
  job.chunk = chunk;
  job.mass = stage_mass(scores.slice(1, 0, n_chunks));
  start(1, stream);
  join(stream);
}

void HostAttend::join(cudaStream_t stream) {
  TF_CHECK(!results_.empty(), "nothing on the host to join");
  TF_CUDA(cudaStreamWaitEvent(stream, finished_.get()));
  for (const Result& r : results_) kernels::convert(r.staged, r.to, stream);
  results_.clear();
  mass_used_ = 0;
}

void HostAttend::rethrow() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace triforce::cuda
