// Kernels read these of a pass over a cache, besides its rows.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "triforce/backend.h"

namespace triforce {

// Length, positions and tokens of the pass in progress, in memory that ops read: one upload a pass.
// Addresses depend on the number of its rows alone, so that recorded passes stay valid.
class PassInputs {
 public:
  PassInputs(Backend& backend, std::int64_t max_append);
  // Takes the tokens of the pass that set() is called for next.
  void take_tokens(std::span<const Token> tokens);
  // n rows at [first_position, first_position + n) after rows [0, before), in tiles.
  void set(std::int64_t first_position, std::int64_t n, std::int64_t before,
           std::int64_t tile_rows);
  TensorView positions() const { return device_.view().rows(tiles_, n_); }  // [n] i32
  TensorView tokens() const;  // [n] i32; of a pass that took none: [0]
  // Points to the number of rows, those of the tile included.
  const std::int32_t* length(int tile) const {
    return device_.view().as<std::int32_t>() + (tiles_ - 1 - tile);
  }
  static std::int64_t bytes(std::int64_t max_append);

 private:
  Backend& b_;
  std::int64_t tiles_;  // at most
  // i32 [tiles + 2 max_append]: lengths, those of the last tiles first; positions; tokens.
  Tensor device_;
  std::vector<std::int32_t> host_;
  std::int64_t n_ = 0;
  std::int64_t taken_ = 0, fed_ = 0;  // tokens of the next pass, and of this one
};

}  // namespace triforce
