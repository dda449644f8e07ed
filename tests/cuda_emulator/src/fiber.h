// Fibers with pooled stacks: raw context switches of Boost.Context, announced to AddressSanitizer.
#pragma once
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tf_emulator::detail {

struct Fiber {
  boost::context::detail::fcontext_t context = nullptr;
  char* stack_low = nullptr;  // lowest usable byte
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

// AddressSanitizer is told of every switch; nothing in other builds. A null `keep` says that the
// fiber that is left will not be resumed.
#if defined(__SANITIZE_ADDRESS__)
void announce_start(void** keep, const Fiber& to);
void announce_finish(void* kept, Fiber& from);
#else
inline void announce_start(void**, const Fiber&) {}
inline void announce_finish(void*, Fiber&) {}
#endif

// Suspends `from` (the running one) and goes on in `to`; returns when somebody switches back.
// Inline, as all that leads here: a return after a switch is mispredicted by the processor, so
// there should be few of them.
[[gnu::always_inline]] inline void switch_fiber(Fiber& from, Fiber& to) {
  announce_start(&from.fake_stack, to);
  const auto transfer = boost::context::detail::jump_fcontext(to.context, &from);
  Fiber& previous = *static_cast<Fiber*>(transfer.data);
  previous.context = transfer.fctx;
  announce_finish(from.fake_stack, previous);
}
// The same, but `from` is never resumed.
[[noreturn]] void leave_fiber(Fiber& from, Fiber& to);

// The stacks of one host thread, in one range with a guard page below each.
class FiberPool {
 public:
  static constexpr std::size_t kMaxFibers = 1024;

  explicit FiberPool(void (*body)());
  ~FiberPool();
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;

  Fiber& operator[](std::size_t index) { return fibers_[index]; }
  // Makes sure that the first `count` can be switched to: new ones start in body().
  void prepare(std::size_t count);
  // Forgets what the fiber was doing; prepare() starts it anew.
  void abandon(std::size_t index);
  // Whether the address lies on any of the stacks.
  bool contains(std::uintptr_t address) const { return address - low_ < bytes_; }

 private:
  void (*body_)();
  std::uintptr_t low_;
  std::size_t bytes_;
  std::vector<Fiber> fibers_;
};

}  // namespace tf_emulator::detail
