// Kernels read these of a pass, besides weights and the rows of its caches.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "triforce/kv_cache.h"

namespace triforce {

// Tokens, positions and lengths of the pass in progress, in memory that ops read: one upload a
// pass. Addresses depend on the numbers of its rows and placements alone, so that recorded passes
// stay valid.
class PassInputs {
 public:
  // Of passes of up to max_tokens tokens in tiles of up to tile_rows. Throws Error(kResources).
  PassInputs(Backend& backend, std::int64_t max_tokens, std::int64_t tile_rows);
  // The rows of `tokens` go to each of the placements, 1 to kMaxPlacements.
  void set(std::span<const Token> tokens, std::span<const Placement> placements);
  TensorView tokens() const;                  // [n] i32
  TensorView positions(int placement) const;  // [n] i32: what new keys are rotated by
  // Points to the number of rows, those of the tile included.
  const std::int32_t* length(int placement, int tile) const {
    return device_.view().as<std::int32_t>() + length_at(placement, tile);
  }
  static std::int64_t bytes(std::int64_t max_tokens, std::int64_t tile_rows);

 private:
  std::int64_t length_at(int placement, int tile) const {
    return (tiles_ - 1 - tile) * kMaxPlacements + placement;
  }

  Backend& b_;
  std::int64_t tile_rows_, tiles_;  // at most
  // i32: lengths [tiles, kMaxPlacements], those of the last tiles first; positions of each
  // placement; tokens.
  Tensor device_;
  std::vector<std::int32_t> host_;
  std::int64_t n_ = 0, positions_ = 0;  // of the pass: tokens, and all positions
};

// A number of rows in memory that ops read: KvView::length of calls that are no pass.
class RowCount {
 public:
  // Throws Error(kResources).
  explicit RowCount(Backend& backend)
      : b_(backend),
        device_(backend.allocator(), DType::kI32, {1}, backend.place(), MemTag::kWorkspace) {}
  void set(std::int64_t rows) {
    auto value = static_cast<std::int32_t>(rows);
    b_.upload(device_.view(), make_view(&value, DType::kI32, {1}));
  }
  const std::int32_t* get() const { return device_.view().as<std::int32_t>(); }
  static std::int64_t bytes() { return size_of(DType::kI32); }

 private:
  Backend& b_;
  Tensor device_;
};

}  // namespace triforce
