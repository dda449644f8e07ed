// Who used what of device memory in this launch, and what other threads and blocks may do with it.
//
// Blocks run one after another here, in any order on a device. So a block may use what another one
// of the same launch wrote only if that one let it go (a fence, then an atomic operation of the
// same thread) and this one took it up (an atomic operation on the same place, then a fence);
// between threads of a block barriers pass it on. A thread may also not write what another one of
// its block may read later or earlier; of two blocks one order of them shows that. PTX ISA, "Memory
// consistency model": causality order.
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
  bool read(std::uintptr_t address, std::size_t bytes, unsigned thread);
  bool write(std::uintptr_t address, std::size_t bytes, unsigned thread);
  bool atomic(std::uintptr_t address, std::size_t bytes, unsigned thread);
  // What the last failed access collided with.
  std::uint64_t block() const { return block_; }
  std::uint64_t other_block() const { return other_.block; }
  unsigned other_thread() const { return other_.thread; }
  bool other_wrote() const { return other_wrote_; }

 private:
  // A moment of a thread: after what it did itself, and what barriers put before it.
  struct Moment {
    unsigned thread = 0;
    std::uint64_t tick = 0, block_tick = 0, warp_tick = 0;
  };
  enum class By : std::uint8_t { kThread, kWarp, kBlock };
  struct Use {
    std::uint64_t tick = 0;  // 0: none
    std::uint32_t block = 0;
    std::uint16_t thread = 0;
    bool atomic = false;
    By by = By::kThread;  // reads: of one thread, or of several of a warp or block
  };
  struct Byte {
    Use write, read;  // the latest; reads of other blocks than the latest are forgotten
  };
  static constexpr std::size_t kLine = 64;
  using Line = std::array<Byte, kLine>;
  // What is known of other blocks: all that is before a fence of theirs.
  using Seen = std::unordered_map<std::uint64_t, Moment>;
  struct Taken {
    Moment at;  // the fence that took it up
    Seen seen;
  };

  Moment now(unsigned thread) const;
  static bool before(std::uint64_t tick, unsigned thread, const Moment& m);
  bool ordered(const Use& write, unsigned thread) const;
  bool read_before(const Use& read, unsigned thread) const;
  bool collide(const Use& other, bool wrote);
  // fine(byte) for all bytes.
  template <class Fine>
  bool for_bytes(std::uintptr_t address, std::size_t bytes, const Fine& fine);
  bool write_as(std::uintptr_t address, std::size_t bytes, unsigned thread, bool atomic,
                std::uint64_t tick);

  std::uint64_t block_ = 0, tick_ = 1, block_tick_ = 1;
  std::array<std::uint64_t, 32> warp_tick_{};
  std::unordered_map<std::uintptr_t, Line> lines_;     // by address over kLine
  std::unordered_map<std::uintptr_t, Seen> released_;  // by address of an atomic operation
  std::unordered_map<unsigned, Moment> fences_;        // of the block's threads, the latest
  std::unordered_map<unsigned, Seen> to_take_;         // by thread: before its next fence
  std::vector<Taken> taken_;
  Use other_;
  bool other_wrote_ = false;
};

}  // namespace tf_emulator::detail
