// Page-locked memory between the host's pageable memory and the device.
#pragma once
#include <array>
#include <cstdint>

#include "cuda/cuda_allocator.h"
#include "cuda/runtime.h"

namespace triforce::cuda {

// A ring of page-locked slots. The host fills a slot and queues its copy; a slot comes up again
// only when that copy has happened, so the host waits for the device only when it is a whole ring
// ahead. Its source may be reused at once.
class StagingRing {
 public:
  StagingRing(CudaAllocator& allocator, int slots, std::int64_t slot_bytes);

  std::int64_t slot_bytes() const { return slot_bytes_; }
  // The next free slot's memory, slot_bytes() long.
  std::byte* fill();
  // Says that the work queued on `stream` so far has taken what is in the slot last filled.
  void queued(cudaStream_t stream);

 private:
  Buffer memory_;
  std::int64_t slot_bytes_;
  std::vector<EventHandle> taken_;
  std::size_t next_ = 0;
};

}  // namespace triforce::cuda
