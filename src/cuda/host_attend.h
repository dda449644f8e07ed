// Attention over page-locked rows that the host computes in the order of a stream.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "cuda/cuda_allocator.h"
#include "cuda/host_wait.h"
#include "cuda/runtime.h"
#include "triforce/host_attention.h"

namespace triforce::cuda {

// Queries go to page-locked memory and results come from there by kernels, since a copy would wait
// behind those that bring KV rows; the host computes on a stream of its own meanwhile.
class HostAttend {
 public:
  // `wait` outlives it.
  HostAttend(std::shared_ptr<HostAttention> attention, const HostWait& wait)
      : attention_(std::move(attention)), wait_(wait) {}
  // Returns when all that was queued is done.
  void synchronize() { wait_.for_stream(stream_.get()); }

  // Page-locked bytes that stage() takes for leases of this shape.
  std::int64_t bytes(const Backend::ScratchShape& shape) const;
  // Throws Error(kResources, "OutOfMemory").
  void stage(CudaAllocator& allocator, const Backend::ScratchShape& shape);

  HostAttention& attention() const { return *attention_; }

  // As Backend::attention(), beside what `stream` is given next and before join().
  void queue(TensorView q, std::span<const KvView> sequences, TensorView out,
             std::span<const TensorView> mass, int chunk, cudaStream_t stream);
  void join(cudaStream_t stream);
  // Backend::score_chunks().
  void score(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks, TensorView scores,
             ChunkRule rule, cudaStream_t stream);
  // Throws what went wrong on the host before the last synchronisation.
  void rethrow();

 private:
  struct Job {
    HostAttend* self = nullptr;
    std::optional<ChunkRule> scores = {};  // mass is to be score_chunks(), and there is no out
    TensorView q, out, mass;               // in page-locked memory
    KvView kv;
    int chunk = 0;
  };
  // Where results of the call that was not joined yet are, in page-locked memory, and shall be.
  struct Result {
    TensorView staged, to;
  };
  // The queries q[n, m], or [n, h, d], in q_: of the same shape.
  TensorView stage_queries(TensorView q, cudaStream_t stream);
  // f32 of the shape of `to` [n, m], in mass_.
  TensorView stage_mass(TensorView to);
  Job& next_job();
  // The host goes on with the newest `jobs` when `stream` is where it is now.
  void start(std::uint64_t jobs, cudaStream_t stream);
  void run(const Job& job) noexcept;

  std::shared_ptr<HostAttention> attention_;
  const HostWait& wait_;
  Stream stream_ = make_stream();
  EventHandle ready_ = make_event(false), finished_ = make_event(false);
  Buffer numbers_;  // i32: what lengths, numbers of appended rows and trees' parents point to
  Buffer q_, out_, mass_;
  // Those queued but not run yet must stay: a pass is queued ahead of its layers.
  std::array<Job, 256> jobs_;
  std::uint64_t queued_ = 0;
  std::atomic<std::uint64_t> ended_{0};
  std::vector<Result> results_;  // of what was not joined yet
  std::int64_t mass_used_ = 0;   // elements
  std::exception_ptr failure_;
};

}  // namespace triforce::cuda
