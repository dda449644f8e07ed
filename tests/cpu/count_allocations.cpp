// In a file of its own: where the replacements can be inlined, gcc takes them for mismatched pairs.
#include "cpu/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> g_count{0};
}  // namespace

std::int64_t triforce::allocation_count() { return g_count.load(); }

void* operator new(std::size_t bytes) {
  ++g_count;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, std::align_val_t align) {
  ++g_count;
  const auto a = static_cast<std::size_t>(align);
  if (void* p = std::aligned_alloc(a, (bytes + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t /*bytes*/) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t /*align*/) noexcept { std::free(p); }
void operator delete(void* p, std::size_t /*bytes*/, std::align_val_t /*align*/) noexcept {
  std::free(p);
}
