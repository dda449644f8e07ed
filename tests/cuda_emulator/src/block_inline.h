// The way of a thread that waits, from its call to the next thread. All of it is inlined into what
// the kernel calls: the processor mispredicts every return after a switch of stacks.
#pragma once
#include <bit>
#include <cstring>

#include "block.h"

// What kernels see as threadIdx, blockIdx, blockDim and gridDim.
extern __thread uint3 thread_index __asm__("tf_emulator_threadIdx");
extern __thread uint3 block_index __asm__("tf_emulator_blockIdx");
extern __thread TfEmulatorDim block_dim __asm__("tf_emulator_blockDim");
extern __thread TfEmulatorDim grid_dim __asm__("tf_emulator_gridDim");

namespace tf_emulator::detail {

inline bool same_site(Site a, Site b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

#define TF_EMULATOR_INLINE [[gnu::always_inline]] inline

TF_EMULATOR_INLINE void BlockRunner::set_current(unsigned thread) {
  current_ = thread;
  thread_index = threads_[thread].index;
  const Fiber& fiber = fibers_[thread];
  reach_.stack = reinterpret_cast<std::uintptr_t>(fiber.stack_low);
  reach_.stack_bytes = fiber.stack_bytes;
}

// From the running fiber to another one; returns when this one goes on.
TF_EMULATOR_INLINE void BlockRunner::resume(unsigned thread) {
  Fiber& from = fibers_[current_];
  set_current(thread);
  ++switches_;
  switch_fiber(from, fibers_[thread]);
}

// The next lane of this warp in round-robin order, else the first ready lane of a later warp.
TF_EMULATOR_INLINE void BlockRunner::go_on_elsewhere() {
  const unsigned first = warp_index();
  const std::uint32_t later = warps_[first].ready & ~((2u << lane()) - 1u);
  std::uint32_t ready = later != 0 ? later : warps_[first].ready;
  unsigned warp = first;
  for (unsigned i = 1; ready == 0 && i < warp_count_; ++i) {
    warp = first + i < warp_count_ ? first + i : first + i - warp_count_;
    ready = warps_[warp].ready;
  }
  if (ready == 0) stuck();
  resume(warp * 32 + static_cast<unsigned>(std::countr_zero(ready)));
}

TF_EMULATOR_INLINE void* const* BlockRunner::arrive(const char* kind, void* mine, Site site) {
  Warp& warp = warps_[warp_index()];
  const std::uint32_t bit = 1u << lane();
  const std::uint32_t missing = warp.exited | ~warp.exists;
  if (missing != 0) {
    fail_incomplete(kind, site, missing);
  }
  if (warp.arrived == 0) {
    warp.kind = kind;
    warp.site = site;
  } else if (!same_site(site, warp.site) ||
             (kind != warp.kind && std::strcmp(kind, warp.kind) != 0)) {
    fail_elsewhere(kind, site);
  }
  warp.arrived |= bit;
  warp.lanes[lane()] = mine;
  if (warp.arrived == 0xffffffffu) {
    in_collective_ = true;
    return warp.lanes.data();
  }
  threads_[current_].waiting = Waiting::kWarp;
  warp.ready &= ~bit;
  go_on_elsewhere();
  threads_[current_].waiting = Waiting::kRunning;
  return nullptr;
}

TF_EMULATOR_INLINE void BlockRunner::release_warp() {
  Warp& warp = warps_[warp_index()];
  in_collective_ = false;
  warp.arrived = 0;
  warp.ready = 0xffffffffu;
}

// warp_collective without the call in between.
template <class Operands, class Compute>
TF_EMULATOR_INLINE void collective(BlockRunner& block, const char* kind, Operands& mine,
                                   const Compute& compute, Site site) {
  if (void* const* lanes = block.arrive(kind, &mine, site)) {
    Operands* typed[32];
    for (int i = 0; i < 32; ++i) typed[i] = static_cast<Operands*>(lanes[i]);
    compute(static_cast<Operands* const*>(typed));
    block.release_warp();
  }
}

}  // namespace tf_emulator::detail
