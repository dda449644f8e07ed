#include "shared_race.h"

#include <algorithm>
#include <cstring>

#include "memory.h"

namespace tf_emulator::detail {
namespace {

using Quad = std::uint32_t __attribute__((vector_size(16)));

Quad load(const std::uint32_t* from) {
  Quad quad;
  std::memcpy(&quad, from, sizeof(quad));
  return quad;
}

// Whether all entries of both are older than the last barrier or the thread's own; by quads of
// bytes. This is so for most accesses. `mask` keeps kind and thread of an entry.
bool all_simple(const std::uint32_t* a, const std::uint32_t* b, std::size_t bytes,
                std::uint32_t ordered, std::uint32_t mask, std::uint32_t mine) {
  Quad bad{};
  for (std::size_t i = 0; i < bytes; i += 4) {
    for (const Quad quad : {load(a + i), load(b + i)}) {
      bad |= reinterpret_cast<Quad>((quad >= ordered) & ((quad & mask) != mine));
    }
  }
  std::uint64_t halves[2];
  std::memcpy(halves, &bad, sizeof(bad));
  return (halves[0] | halves[1]) == 0;
}

}  // namespace

SharedRace::SharedRace() : writes_(kSharedBytes), reads_(kSharedBytes) { warp_tick_.fill(1); }

void SharedRace::advance() {
  if (++tick_ < 1u << (32 - kTickShift)) return;
  // The clock is used up: forget everything, and with it at most what happened since the last
  // barrier.
  std::ranges::fill(writes_, 0);
  std::ranges::fill(reads_, 0);
  tick_ = 2;
  block_tick_ = 1;
  warp_tick_.fill(1);
}

void SharedRace::begin_block() { order_block(); }

void SharedRace::order_block() {
  advance();
  block_tick_ = tick_;
  warp_tick_.fill(tick_);
}

void SharedRace::order_warp(unsigned warp) {
  advance();
  warp_tick_[warp] = tick_;
}

bool SharedRace::before(Entry earlier, unsigned thread) const {
  const std::uint32_t tick = tick_of(earlier);
  if (tick < block_tick_) return true;
  const unsigned other = thread_of(earlier);
  if (other == thread) return true;
  return other / 32 == thread / 32 && tick < warp_tick_[thread / 32];
}

bool SharedRace::read_before(Entry earlier, unsigned thread) const {
  const std::uint32_t tick = tick_of(earlier);
  if (tick < block_tick_) return true;
  const unsigned other = thread_of(earlier);
  switch (kind_of(earlier)) {
    case kMany:
      return false;
    case kWarpMany:
      return other / 32 == thread / 32 && tick < warp_tick_[thread / 32];
    default:
      return before(earlier, thread);
  }
}

bool SharedRace::collide(Entry earlier, bool wrote) {
  other_thread_ = thread_of(earlier);
  other_wrote_ = wrote;
  other_is_many_ = !wrote && (kind_of(earlier) == kMany || kind_of(earlier) == kWarpMany);
  return false;
}

bool SharedRace::read(std::size_t offset, std::size_t bytes, unsigned thread) {
  const Entry mine = entry(kOne, thread);
  const Entry ordered = block_tick_ << kTickShift;  // entries below are older than the barrier
  if (bytes % 4 == 0 &&
      all_simple(&writes_[offset], &reads_[offset], bytes, ordered, kOwner, mine & kOwner)) {
    std::fill_n(reads_.begin() + static_cast<std::ptrdiff_t>(offset), bytes, mine);
    return true;
  }
  for (std::size_t i = offset; i < offset + bytes; ++i) {
    if (writes_[i] >= ordered && !before(writes_[i], thread)) return collide(writes_[i], true);
    const Entry last = reads_[i];
    if (last < ordered || read_before(last, thread)) {
      reads_[i] = mine;
    } else if (kind_of(last) != kMany && thread_of(last) / 32 == thread / 32) {
      reads_[i] = entry(kWarpMany, thread);
    } else {
      reads_[i] = entry(kMany, thread);
    }
  }
  return true;
}

bool SharedRace::write_as(std::size_t offset, std::size_t bytes, unsigned thread, Kind kind) {
  const Entry mine = entry(kind, thread);
  const Entry ordered = block_tick_ << kTickShift;
  const bool simple = bytes % 4 == 0 && all_simple(&writes_[offset], &reads_[offset], bytes,
                                                   ordered, kOwner, mine & kOwner);
  for (std::size_t i = offset; !simple && i < offset + bytes; ++i) {
    const Entry wrote = writes_[i];
    const bool both_atomic = kind == kAtomic && kind_of(wrote) == kAtomic;
    if (wrote >= ordered && !both_atomic && !before(wrote, thread)) return collide(wrote, true);
    if (reads_[i] >= ordered && !read_before(reads_[i], thread)) return collide(reads_[i], false);
  }
  std::fill_n(writes_.begin() + static_cast<std::ptrdiff_t>(offset), bytes, mine);
  return true;
}

bool SharedRace::write(std::size_t offset, std::size_t bytes, unsigned thread) {
  return write_as(offset, bytes, thread, kOne);
}
bool SharedRace::atomic(std::size_t offset, std::size_t bytes, unsigned thread) {
  return write_as(offset, bytes, thread, kAtomic);
}

}  // namespace tf_emulator::detail
