// Attention that the processor computes over KV rows which a device keeps in host memory.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "triforce/backend.h"

namespace triforce {

// Rows are in the order of the CUDA backend (kernels/kv_layout.cuh): of each head [row][head_dim]
// of f16 or bf16, inside a row the 16-byte part c at c ^ (row mod 8). Results are those of the CPU
// backend over the same rows, bit for bit: equal for any number of query rows computed together, of
// heads and of threads. Not thread-safe: one call at a time.
class HostAttention {
 public:
  HostAttention() = default;
  virtual ~HostAttention() = default;
  HostAttention(const HostAttention&) = delete;
  HostAttention& operator=(const HostAttention&) = delete;

  virtual std::string description() const = 0;  // "cpu amx, 2 threads"
  virtual int threads() const = 0;

  // Bytes that a reserve() of this shape takes: of up to `rows` (at most kMaxBatchInvariantRows)
  // query rows of `heads` heads over `kv_heads` KV heads in one call, of `context` rows, with mass
  // of chunks of `chunk_size` rows or more; 0: without mass. The other sizes are not read.
  virtual std::int64_t scratch_bytes(const Backend::ScratchShape& shape) const = 0;
  // Takes host memory, tagged kStaging, for calls of this shape in place of what was reserved
  // before; `allocator` outlives it. Throws Error(kResources, "OutOfMemory"), after which nothing
  // is reserved.
  void reserve(Allocator& allocator, const Backend::ScratchShape& shape);
  void release() noexcept { scratch_ = Buffer(); }

  // Backend::attention over such rows: T <= kMaxBatchInvariantRows; q[T, h, d] and out[T, h d] f32;
  // head_dim a multiple of 64 up to 256, rotate_on_read false. All memory is host memory, kv.length
  // included; rows from *kv.length on are not read. Returns when `out` and `mass` are written.
  // Allocates nothing, but for the threads that the first call starts. Throws kInternal for
  // arguments that break this or the reserved shape.
  void attend(TensorView q, const KvView& kv, TensorView out, TensorView mass, int chunk);

 protected:
  virtual void do_attend(TensorView q, const KvView& kv, TensorView out, TensorView mass,
                         int chunk) = 0;
  std::span<std::byte> scratch() const {
    return {static_cast<std::byte*>(scratch_.data()), static_cast<std::size_t>(scratch_.bytes())};
  }

 private:
  Buffer scratch_;
};

}  // namespace triforce
