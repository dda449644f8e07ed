// What kernels read of a pass over a cache besides its rows.
#pragma once
#include <cstdint>
#include <vector>

#include "triforce/backend.h"

namespace triforce {

// Length and positions of the pass in progress, in memory that ops read. Fixed addresses, so that
// recorded passes stay valid.
class PassInputs {
 public:
  PassInputs(Backend& backend, std::int64_t max_append);
  // n rows at [first_position, first_position + n) after rows [0, before), in tiles.
  void set(std::int64_t first_position, std::int64_t n, std::int64_t before,
           std::int64_t tile_rows);
  TensorView positions() const { return device_.view().rows(tiles_, n_); }  // [n] i32
  // Of the rows with those of a tile.
  const std::int32_t* length(int tile) const {
    return device_.view().as<std::int32_t>() + (tiles_ - 1 - tile);
  }
  static std::int64_t bytes(std::int64_t max_append);

 private:
  Backend& b_;
  std::int64_t tiles_;  // at most
  Tensor device_;  // i32 [tiles + max_append]: lengths, those of the last tiles first; positions
  std::vector<std::int32_t> host_;
  std::int64_t n_ = 0;
};

}  // namespace triforce
