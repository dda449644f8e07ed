// Between the host's tensors and the device's, in pieces through page-locked memory.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/cuda_allocator.h"
#include "cuda/host_wait.h"
#include "cuda/runtime.h"
#include "triforce/tensor.h"

namespace triforce::cuda {

// A ring of page-locked slots. The host fills a slot and queues its copy; a slot comes up again
// only when that copy has happened, so the host waits for the device only when it is a whole ring
// ahead. Its source may be reused at once.
class StagingRing {
 public:
  StagingRing(CudaAllocator& allocator, int slots, std::int64_t slot_bytes, const HostWait& wait);

  std::int64_t slot_bytes() const { return slot_bytes_; }
  // The next free slot's memory, slot_bytes() long.
  std::byte* fill();
  // Says that the work queued on `stream` so far has taken what is in the slot last filled.
  void queued(cudaStream_t stream);

 private:
  Buffer memory_;
  const HostWait& wait_;
  std::int64_t slot_bytes_;
  std::vector<EventHandle> taken_;
  std::size_t next_ = 0;
};

// Whether `p` is memory of a device.
bool is_on_device(const void* p);

class Transfer {
 public:
  // Allocator and `wait` outlive it.
  Transfer(CudaAllocator& allocator, cudaStream_t stream, const HostWait& wait);

  // dst (device) = src (host or device), converting f32/f16/bf16; both contiguous. Returns when
  // src in host memory may be reused; the device has it in the stream's order.
  void upload(const TensorView& dst, const TensorView& src);
  // dst (host) = src (device), converting; both contiguous. Returns when dst is there.
  void download(const TensorView& dst, const TensorView& src);
  // Rows of a tensor [n, cols], one piece after another: body(piece, first) sees rows
  // [first, first + piece.shape[0]) in device memory, in the stream's order.
  template <class Body>
  void for_each_piece(const TensorView& src, const Body& body) {
    if (is_on_device(src.data)) return body(src, std::int64_t{0});
    const std::int64_t row_bytes = src.shape[1] * size_of(src.dtype);
    const std::int64_t max_rows = ring_.slot_bytes() / row_bytes;
    TF_CHECK(max_rows > 0, "a row of {} bytes, at most {}", row_bytes, ring_.slot_bytes());
    for (std::int64_t first = 0; first < src.shape[0]; first += max_rows) {
      const std::int64_t rows = std::min(max_rows, src.shape[0] - first);
      body(stage(src.rows(first, rows)), first);
    }
  }

 private:
  // Copies host rows [n, cols] of at most one slot to `to` in device memory, without gaps.
  void send(void* to, const TensorView& host_rows);
  // The same to the device's stage, as a tensor.
  TensorView stage(const TensorView& host_rows);

  cudaStream_t stream_;
  const HostWait& wait_;
  StagingRing ring_;
  Buffer device_;  // of one slot's size
};

}  // namespace triforce::cuda
