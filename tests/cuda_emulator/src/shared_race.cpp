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

SharedRace::SharedRace()
    : writes_(kSharedBytes), reads_(kSharedBytes), clocks_(kThreads), proxy_ticks_(kThreads) {
  warp_tick_.fill(1);
}

void SharedRace::advance() {
  if (++tick_ < 1u << (32 - kTickShift)) return;
  // The clock is used up: forget everything, and with it at most what happened since the last
  // barrier.
  std::ranges::fill(writes_, 0);
  std::ranges::fill(reads_, 0);
  tick_ = 2;
  block_tick_ = 1;
  warp_tick_.fill(1);
  std::ranges::fill(proxy_ticks_, 1);
  for (auto& units : products_) std::ranges::fill(units, 0);
  if (any_clock_) forget_clocks();
}

void SharedRace::forget_clocks() {
  for (Clock& clock : clocks_) clock.clear();
  any_clock_ = false;
}

void SharedRace::begin_block() {
  order_block();
  if (!any_products_) return;
  for (auto& units : products_) std::ranges::fill(units, 0);
  ended_.fill(0);
  any_products_ = false;
}

void SharedRace::order_block() {
  advance();
  block_tick_ = tick_;
  warp_tick_.fill(tick_);
  if (!any_clock_) return;
  for (const Clock& clock : clocks_) {
    for (unsigned g = 0; g < kGroups; ++g) {
      ended_[g] = std::max(ended_[g], clock.of(kFirstGroup + g));
    }
  }
  forget_clocks();
}

void SharedRace::order_warp(unsigned warp) {
  advance();
  warp_tick_[warp] = tick_;
  if (!any_clock_) return;
  Clock all;
  for (unsigned t = warp * 32; t < warp * 32 + 32; ++t) all.learn(clocks_[t]);
  for (unsigned t = warp * 32; t < warp * 32 + 32; ++t) clocks_[t] = all;
}

void SharedRace::release(unsigned thread, Clock& into) {
  advance();
  into.learn(clocks_[thread]);
  into.learn(thread, tick_);
}

void SharedRace::acquire(unsigned thread, const Clock& from) {
  clocks_[thread].learn(from);
  any_clock_ = true;
}

void SharedRace::order_proxies(unsigned thread) {
  advance();
  proxy_ticks_[thread] = tick_;
}

bool SharedRace::before(Entry earlier, unsigned thread) const {
  const std::uint32_t tick = tick_of(earlier);
  if (tick < block_tick_) return true;
  const unsigned other = thread_of(earlier);
  if (other == thread) return true;
  if (other / 32 == thread / 32 && tick < warp_tick_[thread / 32]) return true;
  return any_clock_ && tick < clocks_[thread].of(other);
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
  other_agent_ = other_thread_ >= kThreads ? "a copy" : "";
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
  if (any_products_ && !products_before(offset, bytes, thread)) return false;
  std::fill_n(writes_.begin() + static_cast<std::ptrdiff_t>(offset), bytes, mine);
  return true;
}

// Whether the thread knows that all products that read there have ended.
bool SharedRace::products_before(std::size_t offset, std::size_t bytes, unsigned thread) {
  for (unsigned g = 0; g < kGroups; ++g) {
    if (products_[g].empty()) continue;
    const std::uint64_t ended = std::max(ended_[g], clocks_[thread].of(kFirstGroup + g));
    for (std::size_t unit = offset / kUnit; unit <= (offset + bytes - 1) / kUnit; ++unit) {
      if (products_[g][unit] <= ended) continue;
      other_thread_ = g;
      other_wrote_ = other_is_many_ = false;
      other_agent_ = "a matrix product that has not been waited for";
      return false;
    }
  }
  return true;
}

bool SharedRace::begin_copy(std::size_t offset, std::size_t bytes, unsigned thread,
                            unsigned copies) {
  if (!write_as(offset, bytes, thread, kOne)) return false;
  std::fill_n(writes_.begin() + static_cast<std::ptrdiff_t>(offset), bytes,
              entry(kOne, kThreads + copies));
  return true;
}

void SharedRace::end_copy(std::size_t offset, std::size_t bytes, unsigned copies, Clock& into) {
  std::fill_n(writes_.begin() + static_cast<std::ptrdiff_t>(offset), bytes,
              entry(kOne, kThreads + copies));
  advance();
  into.learn(kThreads + copies, tick_);
}

bool SharedRace::read_operand(std::size_t offset, unsigned thread, unsigned group,
                              std::uint64_t product) {
  Entry seen = 0;
  for (std::size_t i = offset; i < offset + kUnit; ++i) {
    const Entry wrote = writes_[i];
    if (wrote == seen || wrote == 0) continue;
    seen = wrote;
    if (!before(wrote, thread)) return collide(wrote, true);
    if (thread_of(wrote) < kThreads && tick_of(wrote) >= proxy_ticks_[thread_of(wrote)]) {
      collide(wrote, true);
      other_agent_ = "a thread that has not done fence.proxy.async since";
      return false;
    }
  }
  if (products_[group].empty()) products_[group].resize(kSharedBytes / kUnit);
  products_[group][offset / kUnit] = product;
  any_products_ = true;
  return true;
}

void SharedRace::end_products(unsigned thread, unsigned group, std::uint64_t product) {
  clocks_[thread].learn(kFirstGroup + group, product);
  any_clock_ = true;
}

bool SharedRace::write(std::size_t offset, std::size_t bytes, unsigned thread) {
  return write_as(offset, bytes, thread, kOne);
}
bool SharedRace::atomic(std::size_t offset, std::size_t bytes, unsigned thread) {
  return write_as(offset, bytes, thread, kAtomic);
}

}  // namespace tf_emulator::detail
