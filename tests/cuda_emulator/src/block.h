// Runs the blocks of a launch: one fiber per thread, lanes of a warp in turn, warp after warp.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "barriers.h"
#include "cuda_runtime.h"
#include "device_race.h"
#include "fiber.h"
#include "journal.h"
#include "shared_race.h"
#include "trap.h"
#include "warpgroups.h"

namespace tf_emulator::detail {

struct PendingCopy {
  void* to;
  const void* from;
  std::uint8_t bytes;
  std::uint8_t source_bytes;
};
// What a thread has asked cp.async for and not yet waited for.
struct AsyncCopies {
  std::vector<PendingCopy> copies;  // oldest first
  std::vector<std::size_t> groups;  // end of each committed group in copies
};

enum class Waiting : std::uint8_t { kRunning, kBarrier, kWarp, kEvent, kExited };

struct Thread {
  uint3 index{};
  Waiting waiting = Waiting::kRunning;
  Site site{};
  const char* event = "";  // with kEvent: what the thread waits for
  AsyncCopies async;
  bool has_waited = true;  // for the kernels before its own, or it need not
};

struct Warp {
  std::uint32_t ready = 0;   // lanes that can go on
  std::uint32_t exists = 0;  // lanes the block has
  std::uint32_t exited = 0;
  std::uint32_t arrived = 0;  // lanes in the current collective
  const char* kind = nullptr;
  Site site{};
  std::array<void*, 32> lanes{};
};

struct LaunchShape {
  uint3 grid;
  uint3 block;
  std::size_t shared_bytes;
  bool early = false;         // begins while the kernels before it may still run
  bool notes_writer = false;  // of device memory, for kernels that begin early
};

// Where the accesses of the running thread may go, close together: looked at on each of them.
struct Reach {
  std::uintptr_t stack = 0;
  std::size_t stack_bytes = 0;
  std::uintptr_t device = 0;  // everything allocated so far, and its states
  std::size_t device_bytes = 0;
  std::uint8_t* device_states = nullptr;
  std::uintptr_t shared = 0;
  std::uint8_t* shared_states = nullptr;
  std::uint64_t accesses = 0;
  bool notes_writer = false;
  Journal* journal = nullptr;  // of what is written; null: nobody asks
};

class BlockRunner {
 public:
  BlockRunner();

  // Runs every block of a launch; false: it trapped, see report().
  bool run(const LaunchShape& shape, const KernelCall& call, const Blocks& blocks);
  const TrapReport& report() const { return report_; }
  std::uint64_t switches() const { return switches_; }

  // --- called on fibers; arrive and release_warp are in block_inline.h ---
  void barrier(Site site);
  void* const* arrive(const char* kind, void* mine, Site site);
  void release_warp();
  void memory_barrier_of_warp() {
    race_.order_warp(warp_index());
    if (blocks_.checked) device_race_.order_warp(warp_index());
  }
  void fence() {
    if (blocks_.checked) device_race_.fence(current_);
  }
  // Until another thread wakes this one, which then looks again whether it can go on.
  void suspend(const char* event);
  void wake(unsigned thread);
  // Ends the launch. The caller's frame is left as it is: nothing in it may own memory but `what`,
  // which comes from fmt::format(): the constructor of a string from a literal may be the copy of
  // it that is compiled for kernels, whose writes are checked.
  [[noreturn]] void fail(Trap kind, std::string what);

  // Programmatic dependent launch.
  void wait_for_earlier_grids() { threads_[current_].has_waited = true; }
  void let_next_grid_start();
  bool has_waited() const { return threads_[current_].has_waited; }

  unsigned thread() const { return current_; }
  unsigned lane() const { return current_ % 32; }
  unsigned warp_index() const { return current_ / 32; }
  AsyncCopies& async() { return threads_[current_].async; }
  std::size_t shared_bytes() const { return shape_.shared_bytes; }
  SharedRace& race() { return race_; }
  Barriers& barriers() { return barriers_; }
  Warpgroups& warpgroups() { return warpgroups_; }
  // Of device memory between blocks; null: not checked.
  DeviceRace* device_race() { return blocks_.checked ? &device_race_ : nullptr; }
  uint3 block_at(std::uint64_t number) const;  // in order of x, y, z
  bool in_collective() const { return in_collective_; }
  Reach& reach() { return reach_; }
  bool any_stack(std::uintptr_t address) const { return fibers_.contains(address); }
  // Kernel arguments.
  bool argument(std::uintptr_t address) const {
    return address - reinterpret_cast<std::uintptr_t>(call_->arguments.get()) <
           call_->argument_bytes;
  }

 private:
  static void fiber_body();
  void begin_block(std::uint64_t number);
  void end_thread();
  void go_on_elsewhere();
  [[noreturn]] void stuck();
  [[noreturn]] void fail_incomplete(const char* kind, Site site, std::uint32_t missing);
  [[noreturn]] void fail_elsewhere(const char* kind, Site site);
  void resume(unsigned thread);
  void set_current(unsigned thread);
  void release_barrier();
  ShortText place(unsigned thread) const;
  ShortText waits(unsigned thread) const;

  Reach reach_;
  FiberPool fibers_;
  Fiber main_;
  std::vector<Thread> threads_;
  std::array<Warp, 32> warps_{};
  SharedRace race_;
  Barriers barriers_{*this};
  Warpgroups warpgroups_{*this};
  DeviceRace device_race_;
  Blocks blocks_;
  LaunchShape shape_{};
  const KernelCall* call_ = nullptr;
  TrapReport report_;
  unsigned thread_count_ = 0;
  unsigned warp_count_ = 0;
  unsigned live_ = 0;
  unsigned at_barrier_ = 0;
  Site barrier_site_{};
  unsigned barrier_thread_ = 0;
  unsigned current_ = 0;
  std::uint64_t switches_ = 0;
  bool in_collective_ = false;
};

// The runner whose fiber this host thread is on, else null.
extern __thread BlockRunner* running __attribute__((tls_model("initial-exec")));

ShortText site_text(Site site);

// Fails a launch on a device that has not what compute capability 9.0 alone has.
void require_sm_90();
// The state of 16 bytes of shared memory that are read there: fails if they may not be.
void check_operand(std::uint32_t byte);

}  // namespace tf_emulator::detail
