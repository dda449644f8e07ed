// Which elements of a matrix the lanes of a warp hold, as the PTX manual has it ("Matrix Fragments
// for mma.m16n8k16", "ldmatrix"). tests/cuda/fragments_test.cpp compares them with CuTe's.
#pragma once

namespace tf_emulator {

struct Element {
  int row, column;
  bool operator==(const Element&) const = default;
};

struct Fragments {
  // The first of the two elements of register r of operand A (16 x 16); the other is in the next
  // column.
  static constexpr Element a(int lane, int r) {
    return {lane / 4 + r % 2 * 8, lane % 4 * 2 + r / 2 * 8};
  }
  // The same of B (16 x 8); the other is in the next row.
  static constexpr Element b(int lane, int r) { return {lane % 4 * 2 + r * 8, lane / 4}; }
  // Of the sums (16 x 8), pair r = 0 or 1 of a lane's four; the other is in the next column.
  static constexpr Element d(int lane, int r) { return {lane / 4 + r * 8, lane % 4 * 2}; }
  // Of an 8 x 8 matrix that ldmatrix gives and movmatrix takes; the other is in the next column.
  static constexpr Element matrix(int lane) { return {lane / 4, lane % 4 * 2}; }
  // The lane that names row r of matrix m to ldmatrix.
  static constexpr int row_lane(int m, int r) { return m * 8 + r; }
};

}  // namespace tf_emulator
