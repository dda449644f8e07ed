// The shape of AMX tile registers, the same for linear layers and attention: 0-3 accumulate, 4
// holds the rows of x, q or p, 5-7 are 16 rows of weights, keys or values. All rows have 64 bytes.
#pragma once
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

// rows: of registers 0-4, 1 to 16.
constexpr TileConfig make_tile_config(int rows) {
  TileConfig c;
  for (int t = 0; t < 8; ++t) {
    c.row_bytes[t] = 64;
    c.rows[t] = static_cast<std::uint8_t>(t < 5 ? rows : 16);
  }
  return c;
}

}  // namespace triforce::cpu
