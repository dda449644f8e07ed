#include "core/host_allocator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/host_pages.h"
#include "core/rounding.h"

namespace triforce {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kLarge = 4 << 20;  // from here on a block has a mapping of its own
// From here on it shares one. Not where AddressSanitizer looks for reads beyond a block's end.
#ifdef __SANITIZE_ADDRESS__
constexpr std::int64_t kMiddle = kLarge;
#else
constexpr std::int64_t kMiddle = 64 << 10;
#endif
constexpr std::int64_t kRegion = 32 << 20;

// Threads that touch a block. One takes twice as long for a target's weights, and takes them all
// from one memory node. More would stop together where a quota allows few.
constexpr unsigned kTouchThreads = 4;

std::byte* map_block(std::int64_t bytes) {
  std::byte* p = map_pages(bytes);
  if (p != nullptr) {
    touch_pages(p, bytes,
                static_cast<int>(std::min(kTouchThreads, std::thread::hardware_concurrency())));
  }
  return p;
}

}  // namespace

std::byte* HostAllocator::cut_block(std::int64_t bytes) {
  const std::int64_t size = round_up(bytes, kAlignment);
  if (regions_.empty() || kRegion - regions_.back().used < size) {
    regions_.reserve(regions_.size() + 1);
    std::byte* const begin = map_pages(kRegion);
    if (begin == nullptr) return nullptr;
    regions_.push_back({.begin = begin});
  }
  Region& region = regions_.back();
  std::byte* const p = region.begin + region.used;
  region.used += size;
  region.live += size;
  if (region.used > region.present) {
    touch_pages(region.begin + region.present, region.used - region.present, 1);
    region.present = round_up(region.used, kHugePage);
  }
  return p;
}

void HostAllocator::return_block(const std::byte* p, std::int64_t bytes) noexcept {
  const auto region = std::ranges::find_if(
      regions_, [&](const Region& r) { return p >= r.begin && p < r.begin + kRegion; });
  if (region == regions_.end()) std::abort();  // it is no block of this allocator
  region->live -= round_up(bytes, kAlignment);
  if (region->live != 0) return;
  unmap_pages(region->begin, kRegion);
  regions_.erase(region);
}

void* HostAllocator::allocate(std::int64_t bytes, Place place, MemTag tag) {
  TF_CHECK(bytes >= 0, "allocation of {} bytes", bytes);
  if (bytes == 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  void* p = nullptr;
  if (bytes <= limit_bytes_ - live_bytes_) {
    if (bytes >= kLarge) {
      p = map_block(bytes);
    } else if (bytes >= kMiddle) {
      p = cut_block(bytes);
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
  } else if (bytes >= kMiddle) {
    return_block(static_cast<const std::byte*>(p), bytes);
  } else {
    std::free(p);
  }
  live_bytes_ -= bytes;
  count(-bytes, place, tag);
}

}  // namespace triforce
