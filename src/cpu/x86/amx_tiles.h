// The shapes of AMX tile registers. All rows have 64 bytes.
//
//   registers   0, 1    2, 3    4           5       6, 7
//   one group   sums    sums    x, q or p   w, k or v, 16 rows each
//   a pair      sums    sums    x           x       w
//               first   second  first       second
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace triforce::cpu {

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

constexpr TileConfig make_config(std::array<int, 8> rows) {
  TileConfig c;
  for (std::size_t t = 0; t < 8; ++t) {
    c.row_bytes[t] = 64;
    c.rows[t] = static_cast<std::uint8_t>(rows[t]);
  }
  return c;
}

// One group of 1 to 16 rows.
constexpr TileConfig make_tile_config(int rows) {
  return make_config({rows, rows, rows, rows, rows, 16, 16, 16});
}

// Two groups of 1 to 16 rows.
constexpr TileConfig make_pair_config(int first, int second) {
  return make_config({first, first, second, second, first, second, 16, 16});
}

}  // namespace triforce::cpu
