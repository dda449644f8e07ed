#include "cuda/far_rates.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "core/rounding.h"
#include "cuda/cuda_allocator.h"

namespace triforce::cuda {
namespace {

// Bytes of K and V that each side works through before it comes to the first ones again: more than
// the caches of a processor keep.
constexpr std::int64_t kSideBytes = std::int64_t{512} << 20;
// Before those that count, two runs find out how many calls a round takes: one starts threads.
constexpr int kRounds = 3;
constexpr double kRoundSeconds = 0.1;
constexpr double kMostCalls = 1000;  // of one round: toy sizes would take a million
constexpr int kSlots = 2;

// Heads in page-locked memory: the host attends to the first `side`, the bus brings the last
// `side`. With one head they share it.
class FarHeads {
 public:
  FarHeads(int device, cudaStream_t copy, HostAttention& host, DType dtype,
           const Backend::FarShape& s)
      : shape_(s),
        allocator_(device),
        copy_(copy),
        host_(host),
        half_bytes_(KvFormat(dtype).bytes(s.rows * s.head_dim)),
        side_(static_cast<int>(std::clamp<std::int64_t>(ceil_div(kSideBytes, 2 * half_bytes_), 1,
                                                        std::max(1, s.kv_heads / 2)))),
        per_call_(std::clamp(s.layer_kv_heads / 2, 1, side_)) {
    const int heads = std::min(2 * side_, s.kv_heads);
    rows_ = Buffer(allocator_, 2 * heads * half_bytes_, Place::kPinned, MemTag::kKvFar);
    slots_ = Buffer(allocator_, 2 * kSlots * half_bytes_, Place::kDevice, MemTag::kKvFull);
    kv_.k = rows_.data();
    kv_.v = at(rows_, heads * half_bytes_);
    kv_.format = dtype;
    kv_.kv_heads = kv_.layer_heads = heads;
    kv_.head_dim = s.head_dim;
    kv_.capacity = s.rows;
    kv_.head_stride = s.rows * s.head_dim;
    kv_.length = &length_;
    kv_.on_host = true;
    const std::int64_t query_heads = std::int64_t{per_call_} * s.group;
    const auto host_tensor = [&](std::initializer_list<std::int64_t> dims) {
      return Tensor(allocator_, DType::kF32, dims, Place::kPinned, MemTag::kStaging);
    };
    q_ = host_tensor({s.queries, query_heads, s.head_dim});
    out_ = host_tensor({s.queries, query_heads * s.head_dim});
    Backend::ScratchShape scratch;
    scratch.rows = s.queries;
    scratch.context = s.rows;
    scratch.heads = static_cast<int>(query_heads);
    scratch.kv_heads = per_call_;
    scratch.head_dim = s.head_dim;
    host_.reserve(allocator_, scratch);
  }
  ~FarHeads() {
    host_.release();
    static_cast<void>(cudaStreamSynchronize(copy_));  // it still reads what is given back
  }
  FarHeads(const FarHeads&) = delete;
  FarHeads& operator=(const FarHeads&) = delete;

  // Seconds for one head over the bus, and for one by the host, of so many that begin together.
  struct Seconds {
    double bus = 0, host = 0;
  };
  Seconds run(int brought, int calls) {
    TF_CUDA(cudaEventRecord(begin_.get(), copy_));
    for (int i = 0; i < brought; ++i) bring(i);
    TF_CUDA(cudaEventRecord(end_.get(), copy_));
    Job job{this, calls, 0, nullptr};
    TF_CUDA(cudaLaunchHostFunc(attending_.get(), &attend_all, &job));
    TF_CUDA(cudaStreamSynchronize(attending_.get()));
    if (job.failure) std::rethrow_exception(job.failure);
    TF_CUDA(cudaEventSynchronize(end_.get()));
    float ms = 0;
    TF_CUDA(cudaEventElapsedTime(&ms, begin_.get(), end_.get()));
    // The device's clock has steps of half a microsecond.
    return {std::max(5e-7, static_cast<double>(ms) / 1e3) / brought,
            job.seconds / calls / per_call_};
  }
  int per_call() const { return per_call_; }
  double head_bytes() const { return static_cast<double>(2 * half_bytes_); }

 private:
  static std::byte* at(const Buffer& b, std::int64_t offset) {
    return static_cast<std::byte*>(b.data()) + offset;
  }
  // As KvRing fetches a head.
  void bring(int i) {
    const int head = kv_.kv_heads - side_ + i % side_, slot = 2 * (i % kSlots);
    const KvView from = kv_.heads(head, 1);
    const auto bytes = static_cast<std::size_t>(half_bytes_);
    TF_CUDA(cudaMemcpyAsync(at(slots_, slot * half_bytes_), from.k, bytes, cudaMemcpyHostToDevice,
                            copy_));
    TF_CUDA(cudaMemcpyAsync(at(slots_, (slot + 1) * half_bytes_), from.v, bytes,
                            cudaMemcpyHostToDevice, copy_));
  }
  // On the thread on which the host attends in a pass (HostAttend): the threads that help it are
  // its own, others than those that would help the thread that waits here.
  struct Job {
    FarHeads* self;
    int calls;
    double seconds;
    std::exception_ptr failure;
  };
  static void attend_all(void* argument) {
    Job& job = *static_cast<Job*>(argument);
    try {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < job.calls; ++i) job.self->attend(i);
      job.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    } catch (...) {
      job.failure = std::current_exception();
    }
  }
  void attend(int i) {
    const int head = i % (side_ / per_call_) * per_call_;
    host_.attend(q_.view(), kv_.heads(head, per_call_), out_.view(), {}, 0);
  }

  Backend::FarShape shape_;
  CudaAllocator allocator_;  // its own, for what is not kept
  cudaStream_t copy_;
  HostAttention& host_;
  std::int64_t half_bytes_;  // K or V of one head
  int side_, per_call_;
  Buffer rows_, slots_;
  KvView kv_;
  Tensor q_, out_;
  std::int32_t length_ = static_cast<std::int32_t>(shape_.rows);
  Stream attending_ = make_stream();
  EventHandle begin_ = make_event(true), end_ = make_event(true);
};

}  // namespace

Backend::FarRates measure_far_rates(int device, cudaStream_t copy, HostAttention& host, DType dtype,
                                    const Backend::FarShape& shape) {
  FarHeads heads(device, copy, host, dtype, shape);
  const auto count = [](double seconds) {
    return static_cast<int>(std::clamp(kRoundSeconds / seconds, 1.0, kMostCalls));
  };
  FarHeads::Seconds one = heads.run(1, 1), sum;
  one = heads.run(1, 1);
  for (int i = 0; i < kRounds; ++i) {
    // Both sides end at about the same time, as in a pass that is split well.
    one = heads.run(count(one.bus), count(one.host * heads.per_call()));
    sum.bus += one.bus;
    sum.host += one.host;
  }
  const double gb = kRounds * heads.head_bytes() / 1e9;
  return {gb / sum.bus, gb / sum.host};
}

}  // namespace triforce::cuda
