#include "block.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "block_inline.h"
#include "memory.h"
#include "triforce/format.h"

__thread uint3 thread_index;
__thread uint3 block_index;
__thread TfEmulatorDim block_dim;
__thread TfEmulatorDim grid_dim;

namespace tf_emulator::detail {

__thread BlockRunner* running = nullptr;

ShortText site_text(Site site) {
  if (site.file == nullptr) return short_text("an unknown place");
  const char* const slash = std::strrchr(site.file, '/');
  return short_text(fmt::format("{}:{}", slash == nullptr ? site.file : slash + 1, site.line));
}

BlockRunner::BlockRunner() : fibers_(&fiber_body), threads_(FiberPool::kMaxFibers) {}

void BlockRunner::fiber_body() {
  for (;;) {
    BlockRunner& runner = *running;
    runner.call_->call(runner.call_->function, runner.call_->arguments.get());
    runner.end_thread();
  }
}

void BlockRunner::end_thread() {
  Thread& me = threads_[current_];
  if (!me.has_waited) {
    fail(Trap::kEarly, fmt::format("the thread ends and has not waited for earlier kernels"));
  }
  if (warpgroups_.in_flight(warp_index())) {
    fail(Trap::kOther, fmt::format("the thread ends before the wgmma of its warp were waited for"));
  }
  Warp& warp = warps_[warp_index()];
  const std::uint32_t bit = 1u << lane();
  me.waiting = Waiting::kExited;
  me.async.copies.clear();
  me.async.groups.clear();
  warp.ready &= ~bit;
  warp.exited |= bit;
  if (warp.arrived != 0) {
    fail(Trap::kDivergence,
         fmt::format("the thread ends while lanes {:#010x} of its warp wait in {} "
                     "at {}",
                     warp.arrived, warp.kind, site_text(warp.site).text));
  }
  --live_;
  if (live_ == 0) {
    Fiber& from = fibers_[current_];
    ++switches_;
    switch_fiber(from, main_);
    return;  // the next block
  }
  // Threads that have ended do not take part in barriers.
  if (at_barrier_ == live_) release_barrier();
  go_on_elsewhere();
}

void BlockRunner::let_next_grid_start() {
  if (has_waited()) return;
  fail(Trap::kEarly,
       fmt::format("the next kernel is let start before the thread has waited for earlier ones"));
}

void BlockRunner::release_barrier() {
  at_barrier_ = 0;
  race_.order_block();
  if (blocks_.checked) device_race_.order_block();
  for (unsigned t = 0; t < thread_count_; ++t) {
    if (threads_[t].waiting != Waiting::kBarrier) continue;
    threads_[t].waiting = Waiting::kRunning;
    warps_[t / 32].ready |= 1u << t % 32;
  }
}

void BlockRunner::barrier(Site site) {
  Thread& me = threads_[current_];
  if (at_barrier_ == 0) {
    barrier_site_ = site;
    barrier_thread_ = current_;
  } else if (!same_site(site, barrier_site_)) {
    fail(Trap::kDivergence,
         fmt::format("__syncthreads at {}, but {} waits at the one at {}", site_text(site).text,
                     place(barrier_thread_).text, site_text(barrier_site_).text));
  }
  me.waiting = Waiting::kBarrier;
  me.site = site;
  warps_[warp_index()].ready &= ~(1u << lane());
  if (++at_barrier_ == live_) {
    release_barrier();
    return;
  }
  go_on_elsewhere();
}

void BlockRunner::suspend(const char* event) {
  Thread& me = threads_[current_];
  const Waiting before = me.waiting;
  const bool in_collective = in_collective_;
  in_collective_ = false;
  me.waiting = Waiting::kEvent;
  me.event = event;
  warps_[warp_index()].ready &= ~(1u << lane());
  go_on_elsewhere();
  me.waiting = before;
  in_collective_ = in_collective;
}

void BlockRunner::wake(unsigned thread) { warps_[thread / 32].ready |= 1u << thread % 32; }

void BlockRunner::fail_incomplete(const char* kind, Site site, std::uint32_t missing) {
  const Warp& warp = warps_[warp_index()];
  fail(Trap::kDivergence, fmt::format("{} at {} without lanes {:#010x} of the warp, which {}", kind,
                                      site_text(site).text, missing,
                                      warp.exited != 0 ? "have ended" : "do not exist"));
}

void BlockRunner::fail_elsewhere(const char* kind, Site site) {
  const Warp& warp = warps_[warp_index()];
  fail(Trap::kDivergence,
       fmt::format("{} at {}, but lanes {:#010x} of the warp wait in {} at {}", kind,
                   site_text(site).text, warp.arrived, warp.kind, site_text(warp.site).text));
}

// Nobody can run: somebody waits in a collective that the others will not come to.
void BlockRunner::stuck() {
  for (unsigned w = 0; w < warp_count_; ++w) {
    const Warp& warp = warps_[w];
    if (warp.arrived == 0) continue;
    const unsigned waiting = static_cast<unsigned>(std::countr_zero(warp.arrived));
    const unsigned absent =
        w * 32 + static_cast<unsigned>(std::countr_zero(warp.exists & ~warp.arrived));
    if (absent == (w + 1) * 32) continue;  // the last one to come waits for others
    fail(Trap::kDeadlock,
         fmt::format("{} waits in {} at {}, but {} of the same warp waits {}",
                     place(w * 32 + waiting).text, warp.kind, site_text(warp.site).text,
                     place(absent).text, waits(absent).text));
  }
  for (unsigned t = 0; t < thread_count_; ++t) {
    if (threads_[t].waiting != Waiting::kEvent) continue;
    fail(Trap::kDeadlock, fmt::format("{} waits {}, and no thread of the block can go on",
                                      place(t).text, waits(t).text));
  }
  fail(Trap::kDeadlock, fmt::format("no thread of the block can go on"));
}

ShortText BlockRunner::waits(unsigned thread) const {
  const Thread& t = threads_[thread];
  if (t.waiting == Waiting::kEvent) return short_text(fmt::format("for {}", t.event));
  return short_text(fmt::format("in __syncthreads at {}", site_text(t.site).text));
}

ShortText BlockRunner::place(unsigned thread) const {
  const uint3& i = threads_[thread].index;
  return short_text(fmt::format("thread ({},{},{})", i.x, i.y, i.z));
}

void BlockRunner::fail(Trap kind, std::string what) {
  {
    const std::string text = std::move(what);
    report_.kind = kind;
    report_.message =
        fmt::format("{}: {} in block ({},{},{}) {}", function_name(call_->function), text,
                    block_index.x, block_index.y, block_index.z, place(current_).text);
  }
  leave_fiber(fibers_[current_], main_);
}

uint3 BlockRunner::block_at(std::uint64_t number) const {
  const uint3& grid = shape_.grid;
  return {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
          static_cast<unsigned>(number / grid.x / grid.y)};
}

void BlockRunner::begin_block(std::uint64_t number) {
  block_index = block_at(number);
  if (blocks_.checked) device_race_.begin_block(number);
  live_ = thread_count_;
  at_barrier_ = 0;
  in_collective_ = false;
  for (unsigned w = 0; w < warp_count_; ++w) {
    const unsigned lanes = std::min(32u, thread_count_ - w * 32);
    Warp& warp = warps_[w];
    warp.exists = warp.ready = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1u;
    warp.exited = warp.arrived = 0;
  }
  for (unsigned t = 0; t < thread_count_; ++t) {
    threads_[t].waiting = Waiting::kRunning;
    threads_[t].has_waited = !shape_.early;
  }
  Memory& m = memory();
  std::memset(m.shared_states, kFresh, shape_.shared_bytes);
  // Quiet NaNs in every type: what reads it shows, even where no load is checked.
  unpoison(m.shared, shape_.shared_bytes);
  std::memset(m.shared, 0xff, shape_.shared_bytes);
  race_.begin_block();
  barriers_.begin_block();
  warpgroups_.begin_block();
}

bool BlockRunner::run(const LaunchShape& shape, const KernelCall& call, const Blocks& blocks) {
  if (running != nullptr) throw std::logic_error("CUDA emulator: a launch inside a kernel");
  shape_ = shape;
  blocks_ = blocks;
  call_ = &call;
  report_ = {};
  thread_count_ = shape.block.x * shape.block.y * shape.block.z;
  warp_count_ = (thread_count_ + 31) / 32;
  block_dim = {shape.block.x, shape.block.y, shape.block.z};
  grid_dim = {shape.grid.x, shape.grid.y, shape.grid.z};
  for (unsigned t = 0; t < thread_count_; ++t) {
    threads_[t].index = {t % shape.block.x, t / shape.block.x % shape.block.y,
                         t / (shape.block.x * shape.block.y)};
  }
  fibers_.prepare(thread_count_);
  Memory& m = memory();
  reach_.device = reinterpret_cast<std::uintptr_t>(m.device.data(0));
  reach_.device_bytes = m.device.top();
  reach_.device_states = m.device.states(0);
  reach_.notes_writer = shape.notes_writer;
  reach_.shared = reinterpret_cast<std::uintptr_t>(m.shared);
  reach_.shared_states = m.shared_states;
  const std::uint64_t count = std::uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  std::vector<std::uint64_t> shuffled(blocks.order == BlockOrder::kShuffled ? count : 0);
  std::iota(shuffled.begin(), shuffled.end(), std::uint64_t{0});
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(blocks.seed));
  if (blocks_.checked) device_race_.begin_launch();
  running = this;
  for (std::uint64_t i = 0; i < count && report_.kind == Trap::kNone; ++i) {
    begin_block(!shuffled.empty()                       ? shuffled[i]
                : blocks.order == BlockOrder::kBackward ? count - 1 - i
                                                        : i);
    set_current(0);
    ++switches_;
    switch_fiber(main_, fibers_[0]);
  }
  running = nullptr;
  std::memset(m.shared_states, kForbidden, shape.shared_bytes);
  poison(m.shared, shape.shared_bytes);
  if (report_.kind == Trap::kNone) return true;
  for (unsigned t = 0; t < thread_count_; ++t) {
    fibers_.abandon(t);
    threads_[t].async = {};
  }
  return false;
}

}  // namespace tf_emulator::detail
