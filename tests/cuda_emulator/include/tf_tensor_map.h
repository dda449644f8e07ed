// What the emulated cuTensorMapEncodeTiled leaves in a CUtensorMap, for those who copy by it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tf_emulator::detail {

// A tensor of rank 4, the first dimension without gaps, of which boxes are copied.
struct TensorMap {
  static constexpr int kRank = 4;
  static constexpr std::uint64_t kMark = 0x70616d726f736e74;

  std::uint64_t mark;  // kMark, else nothing was encoded here
  std::uintptr_t address;
  std::uint64_t dims[kRank];
  std::uint64_t strides[kRank];  // bytes; the first is an element's
  std::uint32_t box[kRank];

  std::size_t row_bytes() const { return box[0] * strides[0]; }
  std::size_t box_bytes() const { return row_bytes() * box[1] * box[2] * box[3]; }
  // Whether rows of a box at x are in the tensor from end to end.
  bool has_whole_rows(int x) const {
    return x >= 0 && static_cast<std::uint64_t>(x) + box[0] <= dims[0];
  }
  // visit(offset in the box, address) of every row of the box at `at`; address 0: it is outside.
  template <class Visit>
  void for_each_row(const int (&at)[kRank], const Visit& visit) const {
    std::size_t offset = 0;
    for (std::uint32_t w = 0; w < box[3]; ++w) {
      for (std::uint32_t z = 0; z < box[2]; ++z) {
        for (std::uint32_t y = 0; y < box[1]; ++y, offset += row_bytes()) {
          const std::int64_t index[kRank] = {at[0], std::int64_t{at[1]} + y,
                                             std::int64_t{at[2]} + z, std::int64_t{at[3]} + w};
          std::uintptr_t row = address;
          for (int i = 0; i < kRank; ++i) {
            const auto unsigned_index = static_cast<std::uint64_t>(index[i]);
            if (unsigned_index >= dims[i]) row = 0;  // negative ones are large
            if (row != 0) row += unsigned_index * strides[i];
          }
          visit(offset, row);
        }
      }
    }
  }
};

}  // namespace tf_emulator::detail
