// What a launch writes to memory, so that it can be undone and compared with another's.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace tf_emulator::detail {

// Knows of the bytes that a launch writes, the first time it is going to, what they are before.
class Journal {
 public:
  // To be called before [address, address + bytes) of memory that kernels reach is written.
  void note(std::uintptr_t address, std::size_t bytes) {
    while (bytes > 0) {
      const std::uintptr_t line = address / kLineBytes * kLineBytes;
      const std::size_t part = std::min(bytes, line + kLineBytes - address);
      note_in(line, address - line, part);
      address += part;
      bytes -= part;
    }
  }

  // Memory gets what this holds of each byte, and the other way round: what launches wrote is
  // undone by the first call, and there again after the second.
  void exchange();

  // `other` has been exchanged and holds what its launch wrote, memory has what this one's wrote:
  // the first byte in which they differ, in words. Numbers of f32 may be apart by `relative` of the
  // larger.
  std::optional<std::string> difference(const Journal& other, double relative) const;

 private:
  static constexpr std::size_t kLineBytes = 64;
  struct Line {
    std::uint64_t noted = 0;  // bit i: of byte i
    std::array<std::uint8_t, kLineBytes> data{}, states{};
  };

  void note_in(std::uintptr_t line, std::size_t offset, std::size_t bytes);

  std::unordered_map<std::uintptr_t, Line> lines_;
  std::uintptr_t last_ = 0;  // line noted last, and its entry: launches write along rows
  Line* last_line_ = nullptr;
};

}  // namespace tf_emulator::detail
