// Page-locked host memory, which every device reads where it lies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace triforce::cuda {

// From this size on blocks are memory of our own that is registered.
inline constexpr std::int64_t kRegisteredBytes = std::int64_t{8} << 20;

// Gives a block back; what the device still does with it ends first.
struct ReleasePinned {
  std::int64_t registered_bytes = 0;  // 0: it came from cudaHostAlloc
  void operator()(std::byte* p) const noexcept;
};
using PinnedBlock = std::unique_ptr<std::byte, ReleasePinned>;

// `bytes` > 0 of zeros, aligned to 256. Large blocks are mapped in huge pages on the memory node
// beside the device where there is room, touched by all processors (host_pages.h) and then
// registered. The driver's are small ones, all of a device that does not read registered memory at
// its own address, and what cannot be registered. Null if there is not so much memory or not so
// much may be locked. Throws Error(kDevice, "Cuda").
PinnedBlock allocate_pinned(std::int64_t bytes, int device);

}  // namespace triforce::cuda
