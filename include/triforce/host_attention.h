// Attention that the processor computes over KV rows which a device keeps in host memory.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "triforce/backend.h"

namespace triforce {

// Who computes attention with KV heads in host memory: the device, to which they are brought; the
// host, where they lie; or the host with some of each layer and the device with the others.
enum class OffloadAttention : std::uint8_t { kStream, kHost, kHybrid };
constexpr auto names_of(OffloadAttention /*any*/) { return std::array{"stream", "host", "hybrid"}; }

// What Backend asks of KV views that are on_host: rows of f16 or bf16 in the order of
// host_kv_order.h. Results are those of the CPU backend over the same rows, bit for bit: equal for
// any number of query rows computed together, of heads and of threads. All memory is host memory,
// kv.length included. Not thread-safe: one call at a time. Calls allocate nothing, but for the
// threads that the first one starts, and throw kInternal for arguments that break what they ask.
class HostAttention {
 public:
  HostAttention() = default;
  virtual ~HostAttention() = default;
  HostAttention(const HostAttention&) = delete;
  HostAttention& operator=(const HostAttention&) = delete;

  // Bytes that a reserve() of this shape takes: of up to most_exact_rows() query rows of `heads`
  // heads over `kv_heads` KV heads in one call, of `context` rows, with mass of chunks of
  // `chunk_size` rows or more; 0: without mass. The other sizes are not read.
  virtual std::int64_t scratch_bytes(const Backend::ScratchShape& shape) const = 0;
  // Takes host memory, tagged kStaging, for calls of this shape in place of what was reserved
  // before; `allocator` outlives it. Throws Error(kResources, "OutOfMemory"), after which nothing
  // is reserved.
  void reserve(Allocator& allocator, const Backend::ScratchShape& shape);
  void release() noexcept { scratch_ = Buffer(); }

  // Backend::attention of invariant rows: q[T, h, d] and out[T, h d] f32, head_dim a multiple of 64
  // up to 256; within the reserved shape. Values of rows from *kv.length on do not matter. Returns
  // when `out` and `mass` are written.
  void attend(TensorView q, const KvView& kv, TensorView out, TensorView mass, int chunk);
  // Backend::score_chunks: q[h, d] f32. Returns when `scores` is written.
  void score(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks, TensorView scores,
             ChunkRule rule);

 protected:
  virtual void do_attend(TensorView q, const KvView& kv, TensorView out, TensorView mass,
                         int chunk) = 0;
  virtual void do_score(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                        TensorView scores, ChunkRule rule) = 0;
  std::span<std::byte> scratch() const {
    return {static_cast<std::byte*>(scratch_.data()), static_cast<std::size_t>(scratch_.bytes())};
  }

 private:
  Buffer scratch_;
};

}  // namespace triforce
