// Where an element of a packed matrix lies (pack.h).
#pragma once
#include "core/rounding.h"
#include "kernels/kernels.h"
#include "kernels/platform.cuh"
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

}  // namespace triforce::kernels
