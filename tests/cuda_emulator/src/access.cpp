// The checks of loads and stores. In the instrumented build the compiler calls the functions at the
// end before each access of kernel code: -fsanitize=thread with this file as its run-time library.
#include <link.h>

#include <atomic>
#include <bit>
#include <cstring>

#include "block.h"
#include "memory.h"
#include "runtime.h"
#include "triforce/format.h"

namespace tf_emulator {
namespace detail {
namespace {

#if defined(TF_EMULATOR_INSTRUMENTED)
constexpr bool kInstrumented = true;
#else
constexpr bool kInstrumented = false;
#endif

enum class Access : std::uint8_t { kRead, kWrite, kAtomic };

const char* verb(Access access) {
  return access == Access::kRead ? "read" : access == Access::kWrite ? "write" : "atomic access";
}

// Read-only data of the program: tables of constants that kernels may read.
struct ReadOnly {
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  ReadOnly() {
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* self) {
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& segment = info->dlpi_phdr[i];
            const bool constant = segment.p_type == PT_GNU_RELRO ||
                                  (segment.p_type == PT_LOAD && (segment.p_flags & PF_W) == 0);
            if (!constant) continue;
            const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
            static_cast<ReadOnly*>(self)->ranges.emplace_back(begin, begin + segment.p_memsz);
          }
          return 0;
        },
        this);
  }
  bool holds(std::uintptr_t address) const {
    for (const auto& [begin, end] : ranges) {
      if (address >= begin && address < end) return true;
    }
    return false;
  }
};

ShortText where(std::uintptr_t address) {
  const std::uintptr_t in_arena = address - reinterpret_cast<std::uintptr_t>(memory().shared);
  if (in_arena + (1 << 20) < kSharedBytes + (2 << 20)) {
    return short_text(fmt::format("shared memory ({} bytes) at offset {}", running->shared_bytes(),
                                  static_cast<std::int64_t>(in_arena)));
  }
  if (running->any_stack(address)) return short_text("the local memory of another thread");
  return short_text(describe_memory(address));
}

[[noreturn, gnu::cold]] void refuse(Trap kind, const char* why, Access access,
                                    std::uintptr_t address, std::size_t bytes) {
  running->fail(
      kind, fmt::format("{} ({} of {} bytes, {})", why, verb(access), bytes, where(address).text));
}

// The first of the bytes whose state is the reason.
[[noreturn, gnu::cold]] void refuse_state(Access access, std::uintptr_t address, std::size_t bytes,
                                          const std::uint8_t* states) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if ((states[i] & kForbidden) != 0) {
      refuse(Trap::kOutOfBounds, "out of bounds", access, address + i, bytes);
    }
  }
  for (std::size_t i = 0; i < bytes; ++i) {
    if (states[i] == kPending) {
      refuse(Trap::kUninitialised, "read before the cp.async that fills it was waited for", access,
             address + i, bytes);
    }
    if (kInstrumented && states[i] != kInitialised) {
      refuse(Trap::kUninitialised, "read of bytes never written", access, address + i, bytes);
    }
  }
  refuse(Trap::kOther, "inconsistent state", access, address, bytes);
}

[[noreturn, gnu::cold]] void refuse_race(Access access, std::uintptr_t address, std::size_t bytes) {
  const SharedRace& race = running->race();
  running->fail(
      Trap::kRace,
      fmt::format("race: {} of {} bytes, {}, which {} number {} {} with no barrier between",
                  verb(access), bytes, where(address).text,
                  *race.other_agent() != 0 ? race.other_agent()
                  : race.other_is_many()   ? "several threads, such as"
                                           : "thread",
                  race.other_thread(), race.other_wrote() ? "wrote" : "read"));
}

[[noreturn, gnu::cold]] void refuse_device(Access access, std::uintptr_t address,
                                           std::size_t bytes) {
  const DeviceRace& race = *running->device_race();
  const uint3 other = running->block_at(race.other_block());
  const ShortText who =
      race.other_block() == race.block()
          ? short_text(fmt::format("thread number {} {} with no barrier", race.other_thread(),
                                   race.other_wrote() ? "wrote" : "read"))
          : short_text(fmt::format("block ({},{},{}) wrote with no fences and atomic operations",
                                   other.x, other.y, other.z));
  running->fail(Trap::kRace, fmt::format("race: {} of {} bytes, {}, which {} between", verb(access),
                                         bytes, where(address).text, who.text));
}

constexpr std::uint64_t kAll = 0x0101010101010101u;

// Whether one state, or eight at once, allow the access. Without instrumentation nobody notes the
// plain stores of kernels: then only what is known for certain counts.
template <Access kAccess>
inline bool allowed(std::uint64_t states, std::uint64_t ones) {
  if (kAccess == Access::kWrite) return (states & ones * kForbidden) == 0;
  return kInstrumented ? states == ones * kInitialised
                       : (states & ones * (kForbidden | kPending)) == 0;
}

// Whether all states allow the access; a write makes them initialised.
template <Access kAccess>
inline bool states_allow(std::uint8_t* states, std::size_t bytes) {
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, states + i, 8);
    if (!allowed<kAccess>(word, kAll)) return false;
    if (kAccess == Access::kWrite) std::memcpy(states + i, &kAll, 8);
  }
  for (; i < bytes; ++i) {
    if (!allowed<kAccess>(states[i], 1)) return false;
    if (kAccess == Access::kWrite) states[i] = kInitialised;
  }
  return true;
}

constexpr const char* kNotWaited = "before the thread has waited for earlier kernels";

// Until a thread has waited for the kernels before its own it writes nothing, and reads what no
// work writes that may still run. What it writes then is noted.
template <Access kAccess>
[[gnu::noinline]] void check_early(std::uintptr_t address, std::size_t bytes) {
  Memory& m = memory();
  if (!running->has_waited()) {
    const bool fine = kAccess == Access::kRead &&  // of at most two lines
                      runtime().has_ended(m.device.writer(address)) &&
                      runtime().has_ended(m.device.writer(address + bytes - 1));
    if (!fine) refuse(Trap::kEarly, kNotWaited, kAccess, address, bytes);
  }
  if (kAccess != Access::kRead) {
    m.device.note_writer(reinterpret_cast<const void*>(address), bytes, m.work);
  }
}

// Outside device memory, the arena and the own stack.
template <Access kAccess>
[[gnu::noinline]] void check_elsewhere(std::uintptr_t address, std::size_t bytes) {
  Memory& m = memory();
  if (running->in_collective() && running->any_stack(address)) return;
  // Pinned memory is written by the host behind our back: its bounds are known, its contents not.
  const std::size_t pinned = m.pinned.offset(address);
  if (pinned < m.pinned.top()) {
    const std::uint8_t* const states = m.pinned.states(pinned);
    for (std::size_t i = 0; i < bytes; ++i) {
      if ((states[i] & kForbidden) != 0) refuse_state(kAccess, address, bytes, states);
    }
  }
  if (pinned < m.pinned.top() || m.registered.holds(address, bytes)) {
    if (!running->has_waited()) refuse(Trap::kEarly, kNotWaited, kAccess, address, bytes);
    if (kAccess != Access::kRead && running->reach().journal != nullptr)
      running->reach().journal->note(address, bytes);
    if (kAccess != Access::kWrite) m.bus.read_by_kernels += bytes;
    if (kAccess != Access::kRead) m.bus.written_by_kernels += bytes;
    return;
  }
  if (running->argument(address) && kAccess == Access::kRead) return;
  static const ReadOnly read_only;
  if (kAccess == Access::kRead && read_only.holds(address)) return;
  refuse(Trap::kOutOfBounds, "access to memory the device cannot reach", kAccess, address, bytes);
}

template <Access kAccess>
inline void require_aligned(std::uintptr_t address, std::size_t bytes, bool aligned) {
  if (aligned && address % bytes != 0) [[unlikely]] {
    refuse(Trap::kMisaligned, "misaligned address", kAccess, address, bytes);
  }
}

template <Access kAccess>
[[gnu::always_inline]] inline void check_if_kernel(const void* pointer, std::size_t bytes,
                                                   bool aligned) {
  if (running == nullptr) return;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  Reach& reach = running->reach();
  ++reach.accesses;
  if (address - reach.stack < reach.stack_bytes) return;
  if (address - reach.device < reach.device_bytes) {
    require_aligned<kAccess>(address, bytes, aligned);
    std::uint8_t* const states = reach.device_states + (address - reach.device);
    if (kAccess != Access::kRead && reach.journal != nullptr) [[unlikely]]
      reach.journal->note(address, bytes);
    if (!states_allow<kAccess>(states, bytes)) [[unlikely]] {
      refuse_state(kAccess, address, bytes, states);
    }
    if (kInstrumented && reach.notes_writer) [[unlikely]]
      check_early<kAccess>(address, bytes);
    if constexpr (kInstrumented) {
      if (DeviceRace* const race = running->device_race(); race != nullptr) [[unlikely]] {
        const unsigned thread = running->thread();
        const bool fine = kAccess == Access::kRead    ? race->read(address, bytes, thread)
                          : kAccess == Access::kWrite ? race->write(address, bytes, thread)
                                                      : race->atomic(address, bytes, thread);
        if (!fine) refuse_device(kAccess, address, bytes);
      }
    }
    return;
  }
  const std::size_t offset = address - reach.shared;
  if (offset < kSharedBytes) {
    require_aligned<kAccess>(address, bytes, aligned);
    std::uint8_t* const states = reach.shared_states + offset;
    if (offset + bytes > kSharedBytes || !states_allow<kAccess>(states, bytes)) [[unlikely]] {
      refuse_state(kAccess, address, bytes, states);
    }
    if (!kInstrumented) return;
    SharedRace& race = running->race();
    const unsigned thread = running->thread();
    const bool fine = kAccess == Access::kRead    ? race.read(offset, bytes, thread)
                      : kAccess == Access::kWrite ? race.write(offset, bytes, thread)
                                                  : race.atomic(offset, bytes, thread);
    if (!fine) [[unlikely]]
      refuse_race(kAccess, address, bytes);
    return;
  }
  check_elsewhere<kAccess>(address, bytes);
}

}  // namespace

void fence() {
  if (running != nullptr) running->fence();
}

void check_operand(std::uint32_t byte) {
  constexpr std::size_t kBytes = 16;
  Memory& m = memory();
  if (!states_allow<Access::kRead>(m.shared_states + byte, kBytes)) {
    refuse_state(Access::kRead, reinterpret_cast<std::uintptr_t>(m.shared) + byte, kBytes,
                 m.shared_states + byte);
  }
}

void require_sm_90() {
  if (running == nullptr)
    raise_trap(Trap::kOther, fmt::format("code of sm_90a outside of a kernel"));
  if (const int sm = runtime().limits.architecture; sm != 90) {
    running->fail(Trap::kOther, fmt::format("code of sm_90a on a device of sm_{}", sm));
  }
}

void check_atomic(const void* address, std::size_t bytes) {
  check_if_kernel<Access::kAtomic>(address, bytes, true);
}

}  // namespace detail

void check_read(const void* address, std::size_t bytes) {
  detail::check_if_kernel<detail::Access::kRead>(address, bytes, std::has_single_bit(bytes));
}
void check_write(const void* address, std::size_t bytes) {
  detail::check_if_kernel<detail::Access::kWrite>(address, bytes, std::has_single_bit(bytes));
}

void wait_for_earlier_grids() {
  if (detail::running != nullptr) detail::running->wait_for_earlier_grids();
}
void let_next_grid_start() {
  if (detail::running != nullptr) detail::running->let_next_grid_start();
}

bool instrumented() { return detail::kInstrumented; }

}  // namespace tf_emulator

#if defined(TF_EMULATOR_INSTRUMENTED)
// The names are the compiler's.
extern "C" {
#define TF_EMULATOR_HOOK(prefix, n, aligned)              \
  void __tsan_##prefix##read##n(const void* address) {    \
    using namespace tf_emulator::detail;                  \
    check_if_kernel<Access::kRead>(address, n, aligned);  \
  }                                                       \
  void __tsan_##prefix##write##n(const void* address) {   \
    using namespace tf_emulator::detail;                  \
    check_if_kernel<Access::kWrite>(address, n, aligned); \
  }
TF_EMULATOR_HOOK(, 1, true)
TF_EMULATOR_HOOK(, 2, true)
TF_EMULATOR_HOOK(, 4, true)
TF_EMULATOR_HOOK(, 8, true)
TF_EMULATOR_HOOK(, 16, true)
TF_EMULATOR_HOOK(unaligned_, 2, false)
TF_EMULATOR_HOOK(unaligned_, 4, false)
TF_EMULATOR_HOOK(unaligned_, 8, false)
TF_EMULATOR_HOOK(unaligned_, 16, false)
#undef TF_EMULATOR_HOOK
void __tsan_read_range(const void* address, std::size_t bytes) {
  using namespace tf_emulator::detail;
  check_if_kernel<Access::kRead>(address, bytes, false);
}
void __tsan_write_range(const void* address, std::size_t bytes) {
  using namespace tf_emulator::detail;
  check_if_kernel<Access::kWrite>(address, bytes, false);
}
}
#endif
