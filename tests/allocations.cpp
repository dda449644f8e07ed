// In a file of its own: where the replacements can be inlined, gcc takes them for mismatched pairs.
#include "allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> g_count{0}, g_left{-1};

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  ++g_count;
  if (g_left >= 0 && g_left-- == 0) return nullptr;
  return std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
}
void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* p = allocate(bytes, alignment)) return p;
  throw std::bad_alloc();
}

}  // namespace

std::int64_t triforce::allocation_count() { return g_count; }
void triforce::fail_allocation_after(std::int64_t n) { g_left = n; }

// All pairs of new and delete, since a sanitizer brings its own for those left out.
constexpr std::size_t kAnyType = alignof(std::max_align_t);
void* operator new(std::size_t n) { return allocate_or_throw(n, kAnyType); }
void* operator new[](std::size_t n) { return allocate_or_throw(n, kAnyType); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return allocate(n, kAnyType); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return allocate(n, kAnyType);
}
void* operator new(std::size_t n, std::align_val_t a) {
  return allocate_or_throw(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
