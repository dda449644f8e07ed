#include "device_race.h"

#include <algorithm>
#include <utility>

namespace tf_emulator::detail {

void DeviceRace::begin_launch() {
  writes_.clear();
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

bool DeviceRace::ordered(const Write& write, unsigned thread) const {
  if (write.block == block_) return true;  // barriers inside a block: see the README
  return std::ranges::any_of(taken_, [&](const Taken& t) {
    const auto seen = t.seen.find(write.block);
    return seen != t.seen.end() && before(write.tick, write.thread, seen->second) &&
           before(t.at.tick, t.at.thread, now(thread));
  });
}

bool DeviceRace::check(std::uintptr_t address, std::size_t bytes, unsigned thread,
                       bool atomic) const {
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto found = writes_.find(address + i);
    if (found == writes_.end() || (atomic && found->second.atomic) ||
        ordered(found->second, thread)) {
      continue;
    }
    other_block_ = found->second.block;
    return false;
  }
  return true;
}

bool DeviceRace::read(std::uintptr_t address, std::size_t bytes, unsigned thread) const {
  return check(address, bytes, thread, false);
}

bool DeviceRace::write(std::uintptr_t address, std::size_t bytes, unsigned thread) {
  if (!check(address, bytes, thread, false)) return false;
  for (std::size_t i = 0; i < bytes; ++i) writes_[address + i] = {block_, tick_, thread, false};
  return true;
}

bool DeviceRace::atomic(std::uintptr_t address, std::size_t bytes, unsigned thread) {
  if (!check(address, bytes, thread, true)) return false;
  const auto fence = fences_.find(thread);
  // Who takes up what was let go here comes after the operation itself, too.
  const std::uint64_t tick = fence == fences_.end() ? tick_ : fence->second.tick;
  for (std::size_t i = 0; i < bytes; ++i) writes_[address + i] = {block_, tick, thread, true};
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
