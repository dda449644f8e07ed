// Where an element of a packed matrix lies (pack.h).
#pragma once
#include "core/rounding.h"
#include "kernels/element.cuh"
#include "kernels/kernels.h"
#include "kernels/platform.cuh"
#include "triforce/quantisation.h"
#include "triforce/random.h"

namespace triforce::kernels {

// Bytes of one operand of a tile, and of a tile.
constexpr std::int64_t kOperandElements = 256, kTileElements = 512;

// Index of the first of the four elements (row, col .. col + 3) of a matrix; col is a multiple
// of 4.
TF_HOST_DEVICE inline std::int64_t packed_index(std::int64_t row, std::int64_t col,
                                                std::int64_t k_tiles) {
  const std::int64_t tile = row / kTileRows * k_tiles + col / kTileCols;
  const int r = static_cast<int>(row % kTileRows), c = static_cast<int>(col % kTileCols);
  const int operand = c % 8 / 4, lane = r % 8 * 4 + c / 8;
  // Registers: {g, first pair}, {g + 8, first pair}, {g, second pair}, {g + 8, second pair}.
  return tile * kTileElements + operand * kOperandElements + lane * 8 + r / 8 * 2;
}
// From there: elements 0 and 1 at +0 and +1, elements 2 and 3 at +4 and +5.
TF_HOST_DEVICE inline int packed_offset(int i) { return i % 2 + i / 2 * 4; }

// body(T{}) with the type of weights that are not quantised, body(Codes<T, kBits>{}) of others.
template <class Body>
void with_weights(WeightFormat format, const Body& body) {
  with_half(format.type, [&](auto t) {
    using T = decltype(t);
    switch (format.quantisation) {
      case Quantisation::kNone:
        return body(t);
      case Quantisation::kInt8:
        return body(Codes<T, 8>{});
      case Quantisation::kInt4:
        return body(Codes<T, 4>{});
    }
  });
}

// A group of columns of 16 rows whose weights are codes of kBits (kernels.h).
template <int kBits>
struct PackedGroup {
  static constexpr int kZero = 1 << (kBits - 1);  // the code 0 as it is stored
  static constexpr int kCodeBytes = kTileRows * static_cast<int>(kWeightGroup) * kBits / 8;
  static constexpr int kBytes = kCodeBytes + kTileRows * 2;

  // Of the first of four codes of a row, whose column is a multiple of 4. All four are in bytes
  // of their own row alone.
  TF_HOST_DEVICE static int code_at(int row, int col) {
    const int tile = col / kTileCols, c = col % kTileCols, lane = row % 8 * 4 + c / 8;
    const int operand = c % 8 / 4;
    const int word = kBits == 4 ? lane * 4 + tile * 2 + operand  // one for an operand, or two
                                : (tile * 32 + lane) * 4 + operand * 2;
    return word * 4 + row / 8;
  }
  // From there: the byte of code i.
  TF_HOST_DEVICE static int code_offset(int i) { return i % 2 * 2 + (kBits == 4 ? 0 : i / 2 * 4); }
  // Its bit in that byte.
  TF_HOST_DEVICE static int code_shift(int i) { return kBits == 4 ? i / 2 * 4 : 0; }
  // Bytes of a row's scale.
  TF_HOST_DEVICE static int scale_at(int row) { return kCodeBytes + row % 8 * 4 + row / 8 * 2; }
};

}  // namespace triforce::kernels
