// Host memory for every backend that computes on the host.
#pragma once
#include <cstdint>
#include <limits>
#include <mutex>

#include "triforce/tensor.h"

namespace triforce {

// 64-byte aligned (large blocks 2 MiB aligned, in huge pages where the system grants them), zeroed
// and touched, so that no page fault is left for a timed region. Thread-safe.
class HostAllocator final : public Allocator {
 public:
  // limit_bytes: allocations that would bring the live bytes above it throw, as if memory ended.
  explicit HostAllocator(std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max())
      : limit_bytes_(limit_bytes) {}

  // place is recorded only: the host has one kind of memory. Throws Error(kResources,
  // "OutOfMemory").
  void* allocate(std::int64_t bytes, Place place, MemTag tag) override;
  void release(void* p, std::int64_t bytes, Place place, MemTag tag) noexcept override;

 private:
  std::mutex mutex_;
  std::int64_t limit_bytes_;
  std::int64_t live_bytes_ = 0;
};

}  // namespace triforce
