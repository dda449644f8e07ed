#include "device_race.h"

#include <algorithm>
#include <utility>

namespace tf_emulator::detail {

void DeviceRace::begin_launch() {
  lines_.clear();
  released_.clear();
}

void DeviceRace::begin_block(std::uint64_t block) {
  block_ = block;
  fences_.clear();
  to_take_.clear();
  taken_.clear();
  order_block();
}

void DeviceRace::order_block() {
  block_tick_ = ++tick_;
  warp_tick_.fill(tick_);
}

void DeviceRace::order_warp(unsigned warp) { warp_tick_[warp] = ++tick_; }

DeviceRace::Moment DeviceRace::now(unsigned thread) const {
  return {thread, tick_, block_tick_, warp_tick_[thread / 32]};
}

// Whether what `thread` did at `tick` is before a moment of its block.
bool DeviceRace::before(std::uint64_t tick, unsigned thread, const Moment& m) {
  if (tick < m.block_tick) return true;
  if (thread == m.thread) return tick <= m.tick;
  return thread / 32 == m.thread / 32 && tick < m.warp_tick;
}

void DeviceRace::fence(unsigned thread) {
  ++tick_;  // what follows is after it
  const Moment m = now(thread);
  fences_[thread] = {m.thread, m.tick - 1, m.block_tick, m.warp_tick};
  if (const auto found = to_take_.find(thread); found != to_take_.end()) {
    taken_.push_back({m, std::move(found->second)});
    to_take_.erase(found);
  }
}

bool DeviceRace::ordered(const Use& write, unsigned thread) const {
  if (write.block == block_ && before(write.tick, write.thread, now(thread))) return true;
  return std::ranges::any_of(taken_, [&](const Taken& t) {
    const auto seen = t.seen.find(write.block);
    return seen != t.seen.end() && before(write.tick, write.thread, seen->second) &&
           before(t.at.tick, t.at.thread, now(thread));
  });
}

bool DeviceRace::read_before(const Use& read, unsigned thread) const {
  if (read.block != block_ || read.tick < block_tick_) return true;
  const bool same_warp = read.thread / 32 == thread / 32;
  switch (read.by) {
    case By::kThread:
      return before(read.tick, read.thread, now(thread));
    case By::kWarp:
      return same_warp && read.tick < warp_tick_[thread / 32];
    case By::kBlock:
      return false;
  }
  return false;
}

bool DeviceRace::collide(const Use& other, bool wrote) {
  other_ = other;
  other_wrote_ = wrote;
  return false;
}

template <class Fine>
bool DeviceRace::for_bytes(std::uintptr_t address, std::size_t bytes, const Fine& fine) {
  Line* line = nullptr;
  for (std::uintptr_t at = address; at < address + bytes; ++at) {
    if (line == nullptr || at % kLine == 0) line = &lines_[at / kLine];
    if (!fine((*line)[at % kLine])) return false;
  }
  return true;
}

bool DeviceRace::read(std::uintptr_t address, std::size_t bytes, unsigned thread) {
  return for_bytes(address, bytes, [&](Byte& byte) {
    if (byte.write.tick != 0 && !ordered(byte.write, thread)) return collide(byte.write, true);
    Use mine{tick_, static_cast<std::uint32_t>(block_), static_cast<std::uint16_t>(thread)};
    const Use& last = byte.read;
    if (last.tick != 0 && !read_before(last, thread)) {
      const bool same_warp = last.by != By::kBlock && last.thread / 32 == thread / 32;
      mine.by = same_warp ? By::kWarp : By::kBlock;
    }
    byte.read = mine;
    return true;
  });
}

bool DeviceRace::write_as(std::uintptr_t address, std::size_t bytes, unsigned thread, bool atomic,
                          std::uint64_t tick) {
  const Use mine{tick, static_cast<std::uint32_t>(block_), static_cast<std::uint16_t>(thread),
                 atomic};
  return for_bytes(address, bytes, [&](Byte& byte) {
    const bool both_atomic = atomic && byte.write.atomic;
    if (byte.write.tick != 0 && !both_atomic && !ordered(byte.write, thread)) {
      return collide(byte.write, true);
    }
    if (byte.read.tick != 0 && !read_before(byte.read, thread)) return collide(byte.read, false);
    byte.write = mine;
    return true;
  });
}

bool DeviceRace::write(std::uintptr_t address, std::size_t bytes, unsigned thread) {
  return write_as(address, bytes, thread, false, tick_);
}

bool DeviceRace::atomic(std::uintptr_t address, std::size_t bytes, unsigned thread) {
  const auto fence = fences_.find(thread);
  // Who takes up what was let go here comes after the operation itself, too.
  const std::uint64_t tick = fence == fences_.end() ? tick_ : fence->second.tick;
  if (!write_as(address, bytes, thread, true, tick)) return false;
  Seen& here = released_[address];
  to_take_[thread].insert(here.begin(), here.end());
  if (fence == fences_.end()) return true;
  here[block_] = fence->second;
  // With it goes on what the fence found taken up.
  for (const Taken& t : taken_) {
    if (before(t.at.tick, t.at.thread, fence->second)) here.insert(t.seen.begin(), t.seen.end());
  }
  return true;
}

}  // namespace tf_emulator::detail
