#include "model/pass_inputs.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/rounding.h"

namespace triforce {
namespace {

std::int64_t elements(std::int64_t max_tokens, std::int64_t tile_rows) {
  return ceil_div(max_tokens, tile_rows) * kMaxPlacements + (kMaxPlacements + 1) * max_tokens;
}

}  // namespace

PassInputs::PassInputs(Backend& backend, std::int64_t max_tokens, std::int64_t tile_rows)
    : b_(backend),
      tile_rows_(tile_rows),
      tiles_(ceil_div(max_tokens, tile_rows)),
      device_(backend.allocator(), DType::kI32, {elements(max_tokens, tile_rows)}, backend.place(),
              MemTag::kWorkspace),
      host_(static_cast<std::size_t>(elements(max_tokens, tile_rows))) {}

std::int64_t PassInputs::bytes(std::int64_t max_tokens, std::int64_t tile_rows) {
  return elements(max_tokens, tile_rows) * size_of(DType::kI32);
}

TensorView PassInputs::tokens() const {
  return device_.view().rows(tiles_ * kMaxPlacements + positions_, n_);
}

TensorView PassInputs::positions(int placement) const {
  return device_.view().rows(tiles_ * kMaxPlacements + placement * n_, n_);
}

void PassInputs::set(std::span<const Token> tokens, std::span<const Placement> placements) {
  const auto n = static_cast<std::int64_t>(tokens.size());
  const std::int64_t tiles = ceil_div(n, tile_rows_);
  TF_CHECK(n >= 1 && tiles <= tiles_, "pass of {} tokens in {} tiles, at most {}", n, tiles,
           tiles_);
  TF_CHECK(!placements.empty() && placements.size() <= kMaxPlacements, "{} placements",
           placements.size());
  n_ = n;
  positions_ = static_cast<std::int64_t>(placements.size()) * n;
  auto to = host_.begin() + tiles_ * kMaxPlacements;
  for (std::size_t p = 0; p < placements.size(); ++p, to += n) {
    const Placement& at = placements[p];
    TF_CHECK(at.first_position + n <= std::numeric_limits<std::int32_t>::max());
    std::iota(to, to + n, static_cast<std::int32_t>(at.first_position));
    for (int t = 0; t < tiles; ++t) {
      host_[static_cast<std::size_t>(length_at(static_cast<int>(p), t))] =
          static_cast<std::int32_t>(at.before + std::min(n, (t + 1) * tile_rows_));
    }
  }
  std::copy(tokens.begin(), tokens.end(), to);
  const std::int64_t first = (tiles_ - tiles) * kMaxPlacements;
  const std::int64_t count = tiles * kMaxPlacements + positions_ + n;
  b_.upload(device_.view().rows(first, count),
            make_view(host_.data() + first, DType::kI32, {count}));
}

}  // namespace triforce
