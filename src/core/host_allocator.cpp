#include "core/host_allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace triforce {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::int64_t kLarge = 4 << 20;  // from here on blocks are mapped

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

void touch(std::byte* p, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(p, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  constexpr std::size_t kPage = 4096;
  for (std::size_t i = 0; i < bytes; i += kPage) const_cast<volatile std::byte*>(p)[i] = {};
}

// Over-maps by one huge page and trims, since mmap promises only page alignment.
std::byte* map_block(std::size_t bytes) {
  const std::size_t want = bytes + kHugePage;
  void* raw = mmap(nullptr, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* base = static_cast<std::byte*>(raw);
  const auto address = reinterpret_cast<std::uintptr_t>(raw);
  const std::size_t front = round_up(address, kHugePage) - address;
  if (front != 0) munmap(base, front);
  if (const std::size_t back = want - front - bytes; back != 0) munmap(base + front + bytes, back);
  madvise(base + front, bytes, MADV_HUGEPAGE);  // a hint: refusal changes speed only
  touch(base + front, bytes);
  return base + front;
}

}  // namespace

void* HostAllocator::allocate(std::int64_t bytes, Place place, MemTag tag) {
  TF_CHECK(bytes >= 0, "allocation of {} bytes", bytes);
  if (bytes == 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  const std::size_t rounded = round_up(static_cast<std::size_t>(bytes), kAlignment);
  void* p = nullptr;
  if (bytes <= limit_bytes_ - live_bytes_) {
    if (bytes >= kLarge) {
      p = map_block(round_up(rounded, kHugePage));
    } else if (p = std::aligned_alloc(kAlignment, rounded); p != nullptr) {
      std::memset(p, 0, rounded);
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
    munmap(p, round_up(static_cast<std::size_t>(bytes), kHugePage));
  } else {
    std::free(p);
  }
  live_bytes_ -= bytes;
  count(-bytes, place, tag);
}

}  // namespace triforce
