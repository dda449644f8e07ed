// Host memory for every backend that computes on the host.
#pragma once
#include <cstdint>
#include <limits>
#include <mutex>
#include <vector>

#include "triforce/tensor.h"

namespace triforce {

// 64-byte aligned (large blocks 2 MiB aligned), zeroed and touched, so that no page fault is left
// for a timed region. All but small blocks lie in huge pages where the system grants them: weights
// of 200 MB in pages of 4 KiB took 1.2 to 1.3 times the time of a pass (an Intel Xeon in a virtual
// machine). Thread-safe.
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
  // A Region is a mapping that blocks of middle size share, one after the other. It is given back
  // when none of them is left, so that one block can hold up to 32 MiB that the ledger does not
  // count.
  struct Region {
    std::byte* begin = nullptr;
    std::int64_t used = 0, live = 0, present = 0;  // bytes
  };
  // Null where there is no memory.
  std::byte* cut_block(std::int64_t bytes);
  void return_block(const std::byte* p, std::int64_t bytes) noexcept;

  std::mutex mutex_;
  std::int64_t limit_bytes_;
  std::int64_t live_bytes_ = 0;
  std::vector<Region> regions_;
};

}  // namespace triforce
