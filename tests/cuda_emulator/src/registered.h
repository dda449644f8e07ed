// Host memory that was handed to the device by cudaHostRegister: ranges of the program's own
// memory, which it may map and unmap as it likes, by mistake too.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace tf_emulator::detail {

class Registered {
 public:
  struct Range {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    std::uint64_t number = 0;  // 1, 2, ... in the order of registration
  };

  // Whether no page of [address, address + bytes) is registered.
  bool is_free(const void* address, std::size_t bytes) const;
  void add(const void* address, std::size_t bytes);
  bool remove(const void* address);  // false: not the start of a range
  void remove_all();

  // The range that holds the address, else the nearest below it, else null.
  const Range* find(std::uintptr_t address) const;
  // Whether [address, address + bytes) lies in one range.
  bool holds(std::uintptr_t address, std::size_t bytes) const;
  // Whether it has a byte in any.
  bool touches(std::uintptr_t address, std::size_t bytes) const;
  // Whether it lies in a range or not far beyond its end.
  bool is_near(std::uintptr_t address) const;
  std::size_t bytes() const { return bytes_; }
  std::string describe(std::uintptr_t address) const;

 private:
  std::map<std::uintptr_t, Range> ranges_;
  std::size_t bytes_ = 0;
  std::uint64_t count_ = 0;
};

// Whether all pages of the range are mapped.
bool is_mapped(const void* address, std::size_t bytes);

}  // namespace tf_emulator::detail
