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

// Suspends `from` (the running one) and goes on in `to`; returns when somebody switches back.
void switch_fiber(Fiber& from, Fiber& to);
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
