// Operands of wgmma in shared memory, as the PTX manual has them ("Matrix descriptor", "Canonical
// layouts"). Elements are of 16 bits, and the swizzle is of 128 bytes.
#pragma once
#include <cstdint>

namespace tf_emulator::detail {

// A matrix [lines][16 of the depth], or, transposed, [16 of the depth][lines].
struct SharedMatrix {
  std::uint32_t start = 0, leading = 0, stride = 0;  // bytes
  bool transposed = false;

  // False: a layout that is not emulated.
  static bool decode(std::uint64_t descriptor, bool transposed, SharedMatrix& out) {
    const auto field = [&](int bit) {
      return static_cast<std::uint32_t>(descriptor >> bit & 0x3fffU) << 4;
    };
    out = {field(0), field(16), field(32), transposed};
    constexpr std::uint64_t kKnown =
        0x3fffU | std::uint64_t{0x3fff} << 16 | std::uint64_t{0x3fff} << 32;
    return (descriptor & ~kKnown) == std::uint64_t{1} << 62;
  }

  // visit(byte, line, k) of every 16 bytes: elements (line, k) to (line, k + 7), or, transposed,
  // (line, k) to (line + 7, k).
  template <class Visit>
  void for_each_part(int first, int lines, const Visit& visit) const {
    if (!transposed) {
      for (int line = first; line < first + lines; ++line) {
        for (int k = 0; k < 16; k += 8) {
          visit(swizzled(line / 8 * static_cast<int>(stride) + line % 8 * 128 + k * 2), line, k);
        }
      }
      return;
    }
    for (int k = 0; k < 16; ++k) {
      for (int line = first; line < first + lines; line += 8) {
        visit(swizzled(line / 64 * static_cast<int>(leading) + line % 64 * 2 +
                       k / 8 * static_cast<int>(stride) + k % 8 * 128),
              line, k);
      }
    }
  }

 private:
  std::uint32_t swizzled(int offset) const {
    const std::uint32_t address = start + static_cast<std::uint32_t>(offset);
    return address ^ (address >> 7 & 7U) << 4;
  }
};

}  // namespace tf_emulator::detail
