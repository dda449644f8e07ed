// What executes: a block with its shared memory, its warps, and the frames of functions in them.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "asynchronous.h"
#include "module.h"
#include "ptx.h"

namespace tf_ptx::detail {

// Ends a launch; caught where it began.
struct Fail {
  Fault fault;
  std::string message;
};
[[noreturn]] inline void fail(Fault fault, std::string message) {
  throw Fail{fault, std::move(message)};
}

enum ByteState : std::uint8_t { kUsable = 0, kBeingCopied = 1 };

struct Block {
  Module* module = nullptr;
  GlobalMemory* memory = nullptr;
  Options options;
  Extent index;
  std::vector<std::byte> shared;
  std::vector<ByteState> shared_states;
  std::size_t being_copied = 0;  // bytes of shared_states
  std::vector<std::byte> parameters;
  Asynchronous asynchronous;
  std::mt19937_64 random;
};

// A function that a warp runs.
struct Frame {
  Function* function = nullptr;
  std::vector<std::byte> registers;
  std::vector<std::byte> local;               // function->local_bytes of every lane
  std::array<std::uint32_t, kLanes> place{};  // of each lane's next instruction
  LaneMask live = 0;                          // lanes that have not returned
  LaneMask waiting = 0;                       // lanes that wait where all must come together
  LaneMask paused = 0;                        // lanes for which others have to do something first

  explicit Frame(Function& f);
};

// A cp.async whose bytes have not arrived.
struct PendingCopy {
  std::uint32_t to = 0;  // of shared memory
  std::uintptr_t from = 0;
  std::uint8_t bytes = 0, source_bytes = 0;
};
struct LaneCopies {
  std::vector<PendingCopy> pending;
  std::vector<std::size_t> group_ends;  // of committed groups, in `pending`
};

// Of lanes that have executed an instruction: nothing; other warps go first, then what follows, or
// the same again.
enum class Pause : std::uint8_t { kNone, kAfter, kAgain };

struct Warp {
  Block* block = nullptr;
  std::uint32_t index = 0;
  Frame* frame = nullptr;  // the innermost
  std::array<LaneCopies, kLanes> copies;
  Pause pause = Pause::kNone;
};

// Runs a frame until all its lanes have returned, stand behind a barrier of the block, or cannot go
// on before others have.
enum class Stop : std::uint8_t { kReturned, kBarrier, kPaused };
Stop run_frame(Warp& warp, Frame& frame);

template <class F>
inline void for_each_lane(LaneMask lanes, F&& f) {
  if (lanes == kAllLanes) {
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
    return;
  }
  for (; lanes != 0; lanes &= lanes - 1) f(std::countr_zero(lanes));
}

template <class T>
using Stored = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// A lane's value of a register, as T. Registers wider than T give its low bits.
template <class T>
inline T get(const Warp& warp, Register r, int lane) {
  Stored<T> bits;
  std::memcpy(&bits,
              warp.frame->registers.data() + r.offset + sizeof(bits) * static_cast<unsigned>(lane),
              sizeof(bits));
  if constexpr (sizeof(T) == sizeof(bits)) {
    return std::bit_cast<T>(bits);
  } else {
    return std::bit_cast<T>(static_cast<std::make_unsigned_t<T>>(bits));
  }
}
template <class T>
inline void set(Warp& warp, Register r, int lane, T value) {
  Stored<T> bits;
  if constexpr (sizeof(T) == sizeof(bits)) {
    bits = std::bit_cast<Stored<T>>(value);
  } else {
    bits = static_cast<std::make_unsigned_t<T>>(value);
  }
  std::memcpy(warp.frame->registers.data() + r.offset + sizeof(bits) * static_cast<unsigned>(lane),
              &bits, sizeof(bits));
}
// The same of integers, of a register's own width: from signed values with their sign.
inline std::uint64_t get_bits(const Warp& warp, Register r, int lane) {
  return r.bytes == 8 ? get<std::uint64_t>(warp, r, lane) : get<std::uint32_t>(warp, r, lane);
}
inline void set_bits(Warp& warp, Register r, int lane, std::uint64_t bits) {
  if (r.bytes == 8) return set<std::uint64_t>(warp, r, lane, bits);
  set<std::uint32_t>(warp, r, lane,
                     static_cast<std::uint32_t>(r.bytes == 2 ? bits & 0xffffu : bits));
}

inline LaneMask get_predicate(const Warp& warp, Register r) {
  LaneMask lanes;
  std::memcpy(&lanes, warp.frame->registers.data() + r.offset, sizeof(lanes));
  return lanes;
}
inline void set_predicate(Warp& warp, Register r, LaneMask lanes, LaneMask values) {
  const LaneMask merged = (get_predicate(warp, r) & ~lanes) | (values & lanes);
  std::memcpy(warp.frame->registers.data() + r.offset, &merged, sizeof(merged));
}

}  // namespace tf_ptx::detail
