// Between the host's tensors and the device's, in pieces through page-locked memory.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/cuda_allocator.h"
#include "cuda/host_wait.h"
#include "cuda/runtime.h"
#include "triforce/tensor.h"

namespace triforce::cuda {

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
    const std::int64_t max_rows = kSlotBytes / row_bytes;
    TF_CHECK(max_rows > 0, "a row of {} bytes, at most {}", row_bytes, kSlotBytes);
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

  // Two pieces under way hide the host's copy behind the bus; 8 MiB make the bus's latency vanish.
  static constexpr int kSlots = 4;
  static constexpr std::int64_t kSlotBytes = std::int64_t{8} << 20;

  cudaStream_t stream_;
  const HostWait& wait_;
  // A ring of page-locked slots. A slot comes up again only when its copy to the device has
  // happened, so the host waits only when it is a whole ring ahead.
  Buffer slots_;
  std::array<EventHandle, kSlots> taken_;
  std::size_t next_ = 0;
  Buffer device_;  // of one slot's size
};

}  // namespace triforce::cuda
