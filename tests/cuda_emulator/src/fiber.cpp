#include "fiber.h"

#include <sys/mman.h>

#include <cstdlib>
#include <stdexcept>

#include "memory.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace tf_emulator::detail {
namespace {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr std::size_t kGuard = 4096;
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStack = 256 << 10;
#else
constexpr std::size_t kStack = 128 << 10;
#endif

thread_local void (*entry_body)() = nullptr;

void enter(transfer_t transfer) {
  Fiber& from = *static_cast<Fiber*>(transfer.data);
  from.context = transfer.fctx;
  announce_finish(nullptr, from);
  entry_body();
  std::abort();  // bodies never return
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__)
void announce_start(void** keep, const Fiber& to) {
  __sanitizer_start_switch_fiber(keep, to.stack_low, to.stack_bytes);
}
// The first fiber of a thread comes from the thread's own stack, whose bounds become known here.
void announce_finish(void* kept, Fiber& from) {
  const void* low = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(kept, &low, &bytes);
  from.stack_low = const_cast<char*>(static_cast<const char*>(low));
  from.stack_bytes = bytes;
}
#endif

void leave_fiber(Fiber& from, Fiber& to) {
  announce_start(nullptr, to);
  jump_fcontext(to.context, &from);
  std::abort();
}

FiberPool::FiberPool(void (*body)()) : body_(body), bytes_(kMaxFibers * (kStack + kGuard)) {
  void* const range = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (range == MAP_FAILED) throw std::runtime_error("CUDA emulator: no memory for fiber stacks");
  low_ = reinterpret_cast<std::uintptr_t>(range);
  fibers_.resize(kMaxFibers);
}

FiberPool::~FiberPool() {
  unpoison(reinterpret_cast<void*>(low_), bytes_);
  munmap(reinterpret_cast<void*>(low_), bytes_);
}

void FiberPool::prepare(std::size_t count) {
  entry_body = body_;
  for (std::size_t i = 0; i < count; ++i) {
    Fiber& fiber = fibers_[i];
    if (fiber.context != nullptr) continue;
    char* const low = reinterpret_cast<char*>(low_) + i * (kStack + kGuard);
    if (fiber.stack_low == nullptr) {
      if (mprotect(low, kGuard, PROT_NONE) != 0) {
        throw std::runtime_error("CUDA emulator: mprotect of a guard page failed");
      }
    }
    // Tops at different distances from a page boundary: else all fibers share a few cache sets.
    const std::size_t colour = i * 17 % 64 * 64;
    fiber.stack_low = low + kGuard;
    fiber.stack_bytes = kStack - colour;
    unpoison(fiber.stack_low, kStack);
    fiber.context = make_fcontext(fiber.stack_low + fiber.stack_bytes, fiber.stack_bytes, enter);
  }
}

void FiberPool::abandon(std::size_t index) {
  fibers_[index].context = nullptr;
  fibers_[index].fake_stack = nullptr;
}

}  // namespace tf_emulator::detail
