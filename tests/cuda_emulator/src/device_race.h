// Who wrote what of device memory in this launch, and what other blocks may read of it.
//
// Blocks run one after another here, in any order on a device. So a block may use what another one
// of the same launch wrote only if that one let it go (a fence, then an atomic operation of the
// same thread) and this one took it up (an atomic operation on the same place, then a fence);
// between threads of a block barriers pass it on. PTX ISA, "Memory consistency model": causality
// order.
#pragma once
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tf_emulator::detail {

class DeviceRace {
 public:
  void begin_launch();
  void begin_block(std::uint64_t block);
  void order_block();              // __syncthreads
  void order_warp(unsigned warp);  // __syncwarp
  void fence(unsigned thread);
  // Each returns true if the access is fine.
  bool read(std::uintptr_t address, std::size_t bytes, unsigned thread) const;
  bool write(std::uintptr_t address, std::size_t bytes, unsigned thread);
  bool atomic(std::uintptr_t address, std::size_t bytes, unsigned thread);
  // The block whose write the last failed access collided with.
  std::uint64_t other_block() const { return other_block_; }

 private:
  // A moment of a thread: after what it did itself, and what barriers put before it.
  struct Moment {
    unsigned thread = 0;
    std::uint64_t tick = 0, block_tick = 0, warp_tick = 0;
  };
  struct Write {
    std::uint64_t block = 0, tick = 0;
    unsigned thread = 0;
    bool atomic = false;
  };
  // What is known of other blocks: all that is before a fence of theirs.
  using Seen = std::unordered_map<std::uint64_t, Moment>;
  struct Taken {
    Moment at;  // the fence that took it up
    Seen seen;
  };

  Moment now(unsigned thread) const;
  static bool before(std::uint64_t tick, unsigned thread, const Moment& m);
  bool ordered(const Write& write, unsigned thread) const;
  bool check(std::uintptr_t address, std::size_t bytes, unsigned thread, bool atomic) const;

  std::uint64_t block_ = 0, tick_ = 1, block_tick_ = 1;
  std::array<std::uint64_t, 32> warp_tick_{};
  std::unordered_map<std::uintptr_t, Write> writes_;   // by byte
  std::unordered_map<std::uintptr_t, Seen> released_;  // by address of an atomic operation
  std::unordered_map<unsigned, Moment> fences_;        // of the block's threads, the latest
  std::unordered_map<unsigned, Seen> to_take_;         // by thread: before its next fence
  std::vector<Taken> taken_;
  mutable std::uint64_t other_block_ = 0;
};

}  // namespace tf_emulator::detail
