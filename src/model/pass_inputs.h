// Kernels read these of a pass, besides weights and the rows of its caches.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "triforce/kv_cache.h"

namespace triforce {

// Tokens, positions and lengths of the pass in progress, in memory that ops read: one upload a
// pass. Addresses depend on the numbers of its rows, parts and placements alone, so that recorded
// passes stay valid.
class PassInputs {
 public:
  // Of passes of up to max_tokens tokens in tiles of up to tile_rows. Throws Error(kResources).
  PassInputs(Backend& backend, std::int64_t max_tokens, std::int64_t tile_rows);
  // The rows of `tokens` go to each of the placements, 1 to kMaxPlacements.
  struct Part {
    std::span<const Token> tokens;
    std::span<const Placement> placements;
  };
  // Each part has as many rows as the longest: zeros, then its own. Several parts, which have
  // equally many placements, are one tile.
  void set(std::span<const Part> parts);
  TensorView tokens() const;                  // [n] i32
  TensorView positions(int placement) const;  // [n] i32: what new keys are rotated by
  // Points to the number of a part's rows, those of the tile included.
  const std::int32_t* length(int placement, int tile, std::size_t part) const {
    return at(tile * placements_ + placement) + part;
  }
  // Points to how many of these are new; null: all of the tile.
  const std::int32_t* appended(std::size_t part) const {
    return parts_ > 1 ? at(placements_) + part : nullptr;
  }
  static std::int64_t bytes(std::int64_t max_tokens, std::int64_t tile_rows);

 private:
  // The numbers [i, parts].
  const std::int32_t* at(int i) const {
    return device_.view().as<std::int32_t>() + first_ + i * parts_;
  }

  Backend& b_;
  std::int64_t tile_rows_, numbers_;  // at most
  // i32: room for numbers, of which the last are used: lengths [tile, placement, part], and of
  // several parts their rows [part]; positions [placement, n]; tokens [n].
  Tensor device_;
  std::vector<std::int32_t> host_;
  std::int64_t n_ = 0, parts_ = 0, first_ = 0;  // of the pass: rows, parts, its first number
  int placements_ = 0;
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
