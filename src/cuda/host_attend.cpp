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
  return {std::int64_t{kMaxBatchInvariantRows} * s.host_heads * s.head_dim,
          s.host_kv_heads * chunks};
}

Backend::ScratchShape shape_of_call(Backend::ScratchShape s) {
  s.rows = kMaxBatchInvariantRows;
  s.heads = s.host_heads;
  s.kv_heads = s.host_kv_heads;
  return s;
}

// [T, h, d] as [T, h d].
TensorView flat_heads(TensorView q) {
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

HostAttend::Job& HostAttend::next_job() {
  if (queued_ - ended_.load() == jobs_.size()) synchronize();
  return jobs_[queued_++ % jobs_.size()];
}

void HostAttend::run(const Job& job) noexcept {
  try {
    attention_->attend(job.q, job.kv, job.out, job.mass, job.chunk);
  } catch (...) {
    failure_ = std::current_exception();
  }
  ++ended_;
}

void HostAttend::queue(TensorView q, const KvView& kv, TensorView out, TensorView mass, int chunk,
                       cudaStream_t stream) {
  TF_CHECK(!pending_, "attention on the host before the last one was joined");
  const std::int64_t rows = q.shape[0], heads = q.shape[1], d = kv.head_dim;
  TF_CHECK(q.numel() * size_of(DType::kF32) <= q_.bytes(), "{} queries of {} heads on the host",
           rows, heads);
  Job& job = next_job();
  job.self = this;
  job.q = make_view(q_.data(), DType::kF32, {rows, heads, d});
  job.out = make_view(out_.data(), DType::kF32, {rows, heads * d});
  job.mass = {};
  if (mass.data != nullptr) {
    job.mass = make_view(mass_.data(), DType::kF32, {mass.shape[0], mass.shape[1]});
    TF_CHECK(job.mass.bytes() <= mass_.bytes(), "mass of {} chunks on the host", mass.numel());
  }
  job.kv = kv;
  job.kv.length = static_cast<const std::int32_t*>(length_.data());
  job.chunk = chunk;

  kernels::convert(flat_heads(q), flat_heads(job.q), stream);
  TF_CUDA(cudaMemcpyAsync(length_.data(), kv.length, sizeof(std::int32_t), cudaMemcpyDeviceToHost,
                          stream));
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
  pending_ = {&job, out, mass};
}

void HostAttend::join(cudaStream_t stream) {
  TF_CHECK(pending_.has_value(), "nothing on the host to join");
  TF_CUDA(cudaStreamWaitEvent(stream, finished_.get()));
  kernels::convert(pending_->job->out, pending_->out, stream);
  if (pending_->mass.data != nullptr) {
    kernels::convert(pending_->job->mass, pending_->mass, stream);
  }
  pending_.reset();
}

void HostAttend::rethrow() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace triforce::cuda
