// Finds accesses to shared memory by two threads of a block, one of them writing, with nothing that
// orders them. Every synchronisation gets the next tick of a clock; per byte the last write and the
// last reads are kept with the tick they happened at. An access happened before another one if both
// are the same thread's, or a __syncthreads lies between, or a __syncwarp of the warp both are in.
//
// Barriers in shared memory (mbarrier) pass on what who arrives knows to those who wait. Besides
// threads there are agents that act for them: the copies that a barrier counts, an agent for each
// barrier, and the matrix products of each warpgroup. Ticks of the latter are numbers of products.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "clock.h"

namespace tf_emulator::detail {

class SharedRace {
 public:
  SharedRace();
  void begin_block();              // also orders everything before
  void order_block();              // __syncthreads
  void order_warp(unsigned warp);  // __syncwarp
  // Each returns true if the access is fine; `offset` and `bytes` lie in the arena.
  bool read(std::size_t offset, std::size_t bytes, unsigned thread);
  bool write(std::size_t offset, std::size_t bytes, unsigned thread);
  bool atomic(std::size_t offset, std::size_t bytes, unsigned thread);
  // A thread passes on what it knows and has done; it learns from what was passed on.
  void release(unsigned thread, Clock& into);
  void acquire(unsigned thread, const Clock& from);
  // fence.proxy.async: products and copies see what the thread has written.
  void order_proxies(unsigned thread);

  // A copy that a thread has asked for, of agent number `copies`: from now on it may write.
  static constexpr unsigned kCopiers = 1000;
  bool begin_copy(std::size_t offset, std::size_t bytes, unsigned thread, unsigned copies);
  // It has written; `into` learns of it.
  void end_copy(std::size_t offset, std::size_t bytes, unsigned copies, Clock& into);

  // 16 bytes that product number `product`, 1, 2, ..., of a warpgroup reads for a thread.
  bool read_operand(std::size_t offset, unsigned thread, unsigned group, std::uint64_t product);
  // The thread knows that products up to this number have ended.
  void end_products(unsigned thread, unsigned group, std::uint64_t product);

  // The thread, and what it did, that the last failed access collided with.
  unsigned other_thread() const { return other_thread_; }
  bool other_wrote() const { return other_wrote_; }
  bool other_is_many() const { return other_is_many_; }
  // It was no thread, but what ("" otherwise).
  const char* other_agent() const { return other_agent_; }

 private:
  // Bits: tick << 13 | kind << 11 | thread.
  enum Kind : std::uint32_t { kOne = 0, kWarpMany = 1, kMany = 2, kAtomic = 3 };
  using Entry = std::uint32_t;
  static constexpr int kTickShift = 13;
  static constexpr Entry kOwner = (1u << kTickShift) - 1;  // kind and thread

  static unsigned thread_of(Entry e) { return e & 0x7ff; }
  static std::uint32_t tick_of(Entry e) { return e >> kTickShift; }
  static Kind kind_of(Entry e) { return static_cast<Kind>(e >> 11 & 3); }
  Entry entry(Kind kind, unsigned thread) const {
    return tick_ << kTickShift | kind << 11 | thread;
  }
  void advance();
  bool before(Entry earlier, unsigned thread) const;
  bool read_before(Entry earlier, unsigned thread) const;
  bool collide(Entry earlier, bool wrote);
  bool write_as(std::size_t offset, std::size_t bytes, unsigned thread, Kind kind);

  static constexpr std::size_t kUnit = 16;  // bytes that a product reads at a time
  static constexpr unsigned kGroups = 8;    // of 128 threads
  static constexpr unsigned kThreads = 1024, kFirstGroup = kThreads + kCopiers;
  bool products_before(std::size_t offset, std::size_t bytes, unsigned thread);
  void forget_clocks();

  std::vector<Entry> writes_, reads_;
  std::vector<Clock> clocks_;               // of threads
  std::vector<std::uint32_t> proxy_ticks_;  // of each thread's last order_proxies()
  bool any_clock_ = false;
  // Numbers of the last products that read each unit, by warpgroup; of those that have ended before
  // the last order_block().
  std::array<std::vector<std::uint64_t>, kGroups> products_;
  std::array<std::uint64_t, kGroups> ended_{};
  bool any_products_ = false;
  std::uint32_t tick_ = 1;
  std::uint32_t block_tick_ = 1;               // of the last order_block
  std::array<std::uint32_t, 32> warp_tick_{};  // of the last order of each warp, >= block_tick_
  unsigned other_thread_ = 0;
  bool other_wrote_ = false, other_is_many_ = false;
  const char* other_agent_ = "";
};

}  // namespace tf_emulator::detail
