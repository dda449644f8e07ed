#include "core/host_allocator.h"

#include <cstdlib>
#include <cstring>

#include "core/host_pages.h"
#include "core/rounding.h"

namespace triforce {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kLarge = 4 << 20;  // from here on blocks are mapped

std::byte* map_block(std::int64_t bytes) {
  std::byte* p = map_pages(bytes);
  if (p != nullptr) touch_pages(p, bytes, 1);
  return p;
}

}  // namespace

void* HostAllocator::allocate(std::int64_t bytes, Place place, MemTag tag) {
  TF_CHECK(bytes >= 0, "allocation of {} bytes", bytes);
  if (bytes == 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  void* p = nullptr;
  if (bytes <= limit_bytes_ - live_bytes_) {
    if (bytes >= kLarge) {
      p = map_block(bytes);
    } else {
      const auto rounded = static_cast<std::size_t>(round_up(bytes, kAlignment));
      p = std::aligned_alloc(kAlignment, rounded);
      if (p != nullptr) std::memset(p, 0, rounded);
    }
  }
  if (p == nullptr) {
    throw_resources("OutOfMemory", "{}: {} bytes of host memory are not available ({} in use)",
                    to_string(tag), bytes, live_bytes_);
  }
  live_bytes_ += bytes;
  count(bytes, place, tag);
  return p;
}

void HostAllocator::release(void* p, std::int64_t bytes, Place place, MemTag tag) noexcept {
  if (p == nullptr) return;
  const std::scoped_lock lock(mutex_);
  if (bytes >= kLarge) {
    unmap_pages(static_cast<std::byte*>(p), bytes);
  } else {
    std::free(p);
  }
  live_bytes_ -= bytes;
  count(-bytes, place, tag);
}

}  // namespace triforce
