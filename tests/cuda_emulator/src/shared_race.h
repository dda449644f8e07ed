// Finds accesses to shared memory by two threads of a block, one of them writing, with nothing that
// orders them. Every synchronisation gets the next tick of a clock; per byte the last write and the
// last reads are kept with the tick they happened at. An access happened before another one if both
// are the same thread's, or a __syncthreads lies between, or a __syncwarp of the warp both are in.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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
  // The thread, and what it did, that the last failed access collided with.
  unsigned other_thread() const { return other_thread_; }
  bool other_wrote() const { return other_wrote_; }
  bool other_is_many() const { return other_is_many_; }

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

  std::vector<Entry> writes_, reads_;
  std::uint32_t tick_ = 1;
  std::uint32_t block_tick_ = 1;               // of the last order_block
  std::array<std::uint32_t, 32> warp_tick_{};  // of the last order of each warp, >= block_tick_
  unsigned other_thread_ = 0;
  bool other_wrote_ = false, other_is_many_ = false;
};

}  // namespace tf_emulator::detail
