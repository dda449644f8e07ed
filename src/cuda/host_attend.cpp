#include "cuda/host_attend.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace triforce::cuda {
namespace {

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
  return size_of(DType::kI32) + (2 * n.q + n.mass) * size_of(DType::kF32) +
         attention_->scratch_bytes(shape_of_call(shape));
}

void HostAttend::stage(CudaAllocator& allocator, const Backend::ScratchShape& shape) {
  for (Buffer* b : {&length_, &q_, &out_, &mass_}) *b = Buffer();
  attention_->release();
  if (shape.host_heads == 0) return;
  const auto take = [&](std::int64_t elements) {
    return Buffer(allocator, elements * size_of(DType::kF32), Place::kPinned, MemTag::kStaging);
  };
  const Sizes n = sizes_of(shape);
  length_ = take(1);
  q_ = take(n.q);
  out_ = take(n.q);
  mass_ = take(n.mass);
  attention_->reserve(allocator, shape_of_call(shape));
}

HostAttend::Job& HostAttend::next_job(TensorView q, const KvView& kv, int chunk,
                                      cudaStream_t stream) {
  TF_CHECK(!pending_, "work for the host before the last one was joined");
  TF_CHECK(q.numel() * size_of(DType::kF32) <= q_.bytes(), "{} elements of queries on the host",
           q.numel());
  if (queued_ - ended_.load() == jobs_.size()) synchronize();
  Job& job = jobs_[queued_++ % jobs_.size()];
  job = Job();
  job.self = this;
  job.kv = kv;
  job.chunk = chunk;
  job.q = q.rank == 3 ? make_view(q_.data(), DType::kF32, {q.shape[0], q.shape[1], q.shape[2]})
                      : make_view(q_.data(), DType::kF32, {q.shape[0], q.shape[1]});
  kernels::convert(flat(q), flat(job.q), stream);
  return job;
}

TensorView HostAttend::staged_mass(std::int64_t n, std::int64_t m) const {
  const TensorView v = make_view(mass_.data(), DType::kF32, {n, m});
  TF_CHECK(v.bytes() <= mass_.bytes(), "{} chunks of {} KV heads on the host", m, n);
  return v;
}

void HostAttend::start(Job& job, cudaStream_t stream) {
  TF_CUDA(cudaEventRecord(ready_.get(), stream));
  TF_CUDA(cudaStreamWaitEvent(stream_.get(), ready_.get()));
  TF_CUDA(cudaLaunchHostFunc(
      stream_.get(),
      [](void* argument) {
        const Job& mine = *static_cast<const Job*>(argument);
        mine.self->run(mine);
      },
      &job));
  TF_CUDA(cudaEventRecord(finished_.get(), stream_.get()));
}

void HostAttend::run(const Job& job) noexcept {
  try {
    if (job.scores) {
      attention_->score(job.q, job.kv, job.chunk, job.mass.shape[1], job.mass);
    } else {
      attention_->attend(job.q, job.kv, job.out, job.mass, job.chunk);
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  ++ended_;
}

void HostAttend::queue(TensorView q, const KvView& kv, TensorView out, TensorView mass, int chunk,
                       cudaStream_t stream) {
  Job& job = next_job(q, kv, chunk, stream);
  job.out = make_view(out_.data(), DType::kF32, {q.shape[0], q.shape[1] * q.shape[2]});
  if (mass.data != nullptr) job.mass = staged_mass(mass.shape[0], mass.shape[1]);
  job.kv.length = static_cast<const std::int32_t*>(length_.data());
  TF_CUDA(cudaMemcpyAsync(length_.data(), kv.length, sizeof(std::int32_t), cudaMemcpyDeviceToHost,
                          stream));
  start(job, stream);
  pending_ = {&job, out, mass};
}

void HostAttend::score(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                       TensorView scores, cudaStream_t stream) {
  Job& job = next_job(q, kv, chunk, stream);
  job.scores = true;
  job.mass = staged_mass(kv.kv_heads, n_chunks);
  start(job, stream);
  pending_ = {&job, {}, scores};
  join(stream);
}

void HostAttend::join(cudaStream_t stream) {
  TF_CHECK(pending_.has_value(), "nothing on the host to join");
  TF_CUDA(cudaStreamWaitEvent(stream, finished_.get()));
  if (pending_->out.data != nullptr) kernels::convert(pending_->job->out, pending_->out, stream);
  if (pending_->mass.data != nullptr) kernels::convert(pending_->job->mass, pending_->mass, stream);
  pending_.reset();
}

void HostAttend::rethrow() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace triforce::cuda
