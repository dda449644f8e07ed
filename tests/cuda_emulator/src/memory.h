// Device, pinned and shared memory of the emulated device: one reserved range of addresses each,
// and for every byte of them a state byte at the same offset of a second range.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "registered.h"
#include "tf_emulator.h"

namespace tf_emulator::detail {

enum State : std::uint8_t {
  kFresh = 0,         // allocated, never written
  kInitialised = 1,   // written
  kPending = 2,       // target of a cp.async that nobody has waited for
  kForbidden = 0x80,  // redzone or freed; any value with this bit
};

enum class Space : std::uint8_t { kDevice, kPinned };

struct Allocation {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  std::uint64_t number = 0;  // 1, 2, ... in the order of allocation
  bool live = true;
};

// One range: allocations are never placed where an earlier one was, so that a use after free is
// seen.
class Region {
 public:
  Region(std::size_t reserved, Space space);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  void* allocate(std::size_t bytes);  // null: the range is used up
  bool release(void* pointer);        // false: not the start of a live allocation
  void release_all();

  // The host may touch the bytes only while work of the device runs; at first it may not. Pinned
  // memory is opened once.
  void open();
  void close();

  // Offset of an address, >= top() when it lies outside of everything handed out so far.
  std::size_t offset(std::uintptr_t address) const { return address - base_; }
  std::size_t top() const { return top_; }
  std::uint8_t* states(std::size_t offset) const { return states_ + offset; }
  // Of device memory, by lines of kLineBytes, which are of one allocation: the number of the work
  // that wrote there last (Runtime); 0: none, or not noted.
  void note_writer(const void* pointer, std::size_t bytes, std::uint32_t work);
  // The same of one line.
  std::uint32_t writer(std::uintptr_t address) const {
    return writers_[offset(address) / kLineBytes];
  }
  char* data(std::size_t offset) const { return reinterpret_cast<char*>(base_) + offset; }
  std::size_t live_bytes() const { return live_bytes_; }
  // The allocation that holds the address, else the nearest below it, else null.
  const Allocation* find(std::uintptr_t address) const;
  // Whether [address, address + bytes) lies in one live allocation.
  bool holds(const void* address, std::size_t bytes) const;
  bool contains(const void* address) const {
    return offset(reinterpret_cast<std::uintptr_t>(address)) < reserved_;
  }
  std::string describe(std::uintptr_t address) const;

 private:
  static constexpr std::size_t kLineBytes = 256;

  void forbid(std::size_t offset, std::size_t bytes);
  void commit(std::size_t end);
  void allow(bool access);

  Space space_;
  std::size_t reserved_;
  std::uintptr_t base_;
  std::uint8_t* states_;
  std::uint32_t* writers_ = nullptr;
  std::size_t top_ = 0;        // end of what was handed out, with its redzone
  std::size_t committed_ = 0;  // end of what is readable and writable
  bool open_ = false;
  // Protection key of the pages, where the processor has them: opening is then a register write,
  // not a walk over all pages. -1: none.
  int key_ = -1;
  std::size_t live_bytes_ = 0;
  std::uint64_t count_ = 0;
  std::map<std::uintptr_t, Allocation> allocations_;
};

// The largest dynamic shared memory any device has, 227 KiB, and the page that holds it.
constexpr std::size_t kSharedBytes = 228 << 10;

struct Memory {
  Region device;
  Region pinned;
  Registered registered;
  char* shared;                 // the arena of the running block, kSharedBytes
  std::uint8_t* shared_states;  // of each byte of it
  Bus bus;                      // what crossed it so far
  std::uint32_t work = 0;       // number of the work that runs
  Memory();
};
Memory& memory();

// What an address outside of shared memory and of stacks is, for a message.
std::string describe_memory(std::uintptr_t address);

// AddressSanitizer's own marks, when the build has it.
void poison(const void* address, std::size_t bytes);
void unpoison(const void* address, std::size_t bytes);

}  // namespace tf_emulator::detail
