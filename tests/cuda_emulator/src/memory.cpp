#include "memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "triforce/format.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace tf_emulator::detail {
namespace {

constexpr std::size_t kAlignment = 256;  // of cudaMalloc, and Region::kLineBytes
constexpr std::size_t kRedzone = 1024;   // between allocations, at least
constexpr std::size_t kPage = 4096, kHugePage = std::size_t{2} << 20;
constexpr std::size_t kReserved = std::size_t{1} << 40;
constexpr std::size_t kMarkedWhenFreed = std::size_t{64} << 20;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Aligned to huge pages.
void* reserve(std::size_t bytes, int protection) {
  void* const range = mmap(nullptr, bytes + kHugePage, protection,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) throw std::runtime_error("CUDA emulator: no address space to reserve");
  void* const aligned =
      reinterpret_cast<void*>(round_up(reinterpret_cast<std::uintptr_t>(range), kHugePage));
  return aligned;
}

void protect(std::uintptr_t address, std::size_t bytes, int protection) {
  if (bytes > 0 && mprotect(reinterpret_cast<void*>(address), bytes, protection) != 0) {
    throw std::runtime_error("CUDA emulator: mprotect failed");
  }
}

void protect_by_key(std::uintptr_t address, std::size_t bytes, int key) {
  if (pkey_mprotect(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE, key) != 0) {
    throw std::runtime_error("CUDA emulator: pkey_mprotect failed");
  }
}

// A host that touches device memory ends with a fault, as it does beside a GPU; this says why.
void explain_faults() {
#if !defined(__SANITIZE_ADDRESS__)
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO | SA_RESETHAND;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    static constexpr char kText[] =
        "CUDA emulator: host code touched device memory, or a kernel memory that is not there\n";
    if (memory().device.contains(info->si_addr)) {
      [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, kText, sizeof kText - 1);
    }
  };
  sigaction(SIGSEGV, &action, nullptr);
#endif
}

}  // namespace

void poison([[maybe_unused]] const void* address, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(address, bytes);
#endif
}

void unpoison([[maybe_unused]] const void* address, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(address, bytes);
#endif
}

Region::Region(std::size_t reserved, Space space)
    : space_(space),
      reserved_(reserved),
      base_(reinterpret_cast<std::uintptr_t>(reserve(reserved, PROT_NONE))),
      states_(static_cast<std::uint8_t*>(reserve(reserved, PROT_NONE))) {
  if (space != Space::kDevice) return;
  // A wish: without keys opening and closing walks over all pages.
  madvise(reinterpret_cast<void*>(base_), reserved, MADV_HUGEPAGE);
  key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  writers_ = static_cast<std::uint32_t*>(
      reserve(reserved / kLineBytes * sizeof(std::uint32_t), PROT_READ | PROT_WRITE));
}

// For the calling thread where there is a key, else for all; the runtime's lock is held.
void Region::allow(bool access) {
  if (key_ >= 0) {
    pkey_set(key_, access ? 0 : PKEY_DISABLE_ACCESS);
  } else {
    protect(base_, committed_, access ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

// Makes [0, end) readable and writable; steps of 2 MiB keep the number of calls down.
void Region::commit(std::size_t end) {
  end = round_up(end, kHugePage);
  if (end <= committed_) return;
  if (key_ >= 0) {
    protect_by_key(base_ + committed_, end - committed_, key_);
  } else if (open_) {
    protect(base_ + committed_, end - committed_, PROT_READ | PROT_WRITE);
  }
  protect(reinterpret_cast<std::uintptr_t>(states_) + committed_, end - committed_,
          PROT_READ | PROT_WRITE);
  committed_ = end;
}

void Region::open() {
  if (!std::exchange(open_, true)) allow(true);
}

void Region::close() {
  if (std::exchange(open_, false)) allow(false);
}

void Region::forbid(std::size_t offset, std::size_t bytes) {
  std::memset(states(offset), kForbidden, bytes);
  poison(data(offset), bytes);
}

void* Region::allocate(std::size_t bytes) {
  const std::size_t begin = top_ == 0 ? kPage : top_;
  const std::size_t end = round_up(begin + bytes + kRedzone, kAlignment);
  if (bytes > reserved_ || end + (std::size_t{2} << 20) > reserved_) return nullptr;
  commit(end);
  if (top_ == 0) forbid(0, kPage);
  forbid(begin + bytes, end - begin - bytes);
  top_ = end;
  live_bytes_ += bytes;
  const Allocation made{base_ + begin, bytes, ++count_, true};
  allocations_.emplace(made.address, made);
  return data(begin);
}

bool Region::release(void* pointer) {
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == allocations_.end() || !found->second.live) return false;
  Allocation& freed = found->second;
  freed.live = false;
  live_bytes_ -= freed.bytes;
  const std::size_t begin = offset(freed.address), first = round_up(begin, kPage);
  const std::size_t end = std::max(first, (begin + freed.bytes) / kPage * kPage);
  // Addresses are never given again, but memory is: allow() would have to walk its pages.
  madvise(reinterpret_cast<void*>(base_ + first), end - first, MADV_DONTNEED);
  // Large blocks become inaccessible pages instead of marks: marks would fill memory.
  if (freed.bytes > kMarkedWhenFreed) {
    const auto states = reinterpret_cast<std::uintptr_t>(states_);
    madvise(reinterpret_cast<void*>(states + first), end - first, MADV_DONTNEED);
    for (const std::uintptr_t range : {base_, states})
      protect(range + first, end - first, PROT_NONE);
    return true;
  }
  forbid(begin, freed.bytes);
  return true;
}

void Region::release_all() {
  for (const std::uintptr_t range : {base_, reinterpret_cast<std::uintptr_t>(states_)}) {
    madvise(reinterpret_cast<void*>(range), committed_, MADV_DONTNEED);
    protect(range, committed_, PROT_NONE);
  }
  if (writers_ != nullptr) {
    madvise(writers_, committed_ / kLineBytes * sizeof(std::uint32_t), MADV_DONTNEED);
  }
  unpoison(data(0), top_);
  allocations_.clear();
  top_ = committed_ = live_bytes_ = 0;
  count_ = 0;
}

void Region::note_writer(const void* pointer, std::size_t bytes, std::uint32_t work) {
  const std::size_t begin = offset(reinterpret_cast<std::uintptr_t>(pointer));
  std::fill(writers_ + begin / kLineBytes, writers_ + (begin + bytes - 1) / kLineBytes + 1, work);
}

const Allocation* Region::find(std::uintptr_t address) const {
  auto above = allocations_.upper_bound(address);
  return above == allocations_.begin() ? nullptr : &std::prev(above)->second;
}

bool Region::holds(const void* address, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const Allocation* const found = find(begin);
  return found != nullptr && found->live && begin - found->address <= found->bytes &&
         bytes <= found->bytes - (begin - found->address);
}

std::string Region::describe(std::uintptr_t address) const {
  const char* const space = space_ == Space::kDevice ? "device memory" : "pinned host memory";
  const Allocation* const found = find(address);
  if (found == nullptr) return fmt::format("{}, before the first allocation", space);
  return fmt::format("{}allocation {} of {} ({} bytes) at offset {}", found->live ? "" : "freed ",
                     found->number, space, found->bytes, address - found->address);
}

Memory::Memory() : device(kReserved, Space::kDevice), pinned(kReserved / 4, Space::kPinned) {
  pinned.open();
  explain_faults();
  // Pages without access around the arena catch what goes far beyond it.
  char* const range = static_cast<char*>(reserve(kSharedBytes + 2 * kPage, PROT_NONE));
  shared = range + kPage;
  protect(reinterpret_cast<std::uintptr_t>(shared), kSharedBytes, PROT_READ | PROT_WRITE);
  shared_states = static_cast<std::uint8_t*>(reserve(kSharedBytes, PROT_READ | PROT_WRITE));
  std::memset(shared_states, kForbidden, kSharedBytes);
  poison(shared, kSharedBytes);
}

Memory& memory() {
  static Memory& instance = *new Memory;  // outlives every user
  return instance;
}

std::string describe_memory(std::uintptr_t address) {
  const Memory& m = memory();
  const auto* const pointer = reinterpret_cast<const void*>(address);
  if (m.device.contains(pointer)) return m.device.describe(address);
  if (m.pinned.contains(pointer)) return m.pinned.describe(address);
  if (m.registered.is_near(address)) return m.registered.describe(address);
  return fmt::format("host memory {}", pointer);
}

}  // namespace tf_emulator::detail
