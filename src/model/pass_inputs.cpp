#include "model/pass_inputs.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/rounding.h"

namespace triforce {
namespace {

std::int64_t most_tiles(std::int64_t max_append) {
  return ceil_div(max_append, kMaxBatchInvariantRows);
}

}  // namespace

PassInputs::PassInputs(Backend& backend, std::int64_t max_append)
    : b_(backend),
      tiles_(most_tiles(max_append)),
      device_(backend.allocator(), DType::kI32, {tiles_ + 2 * max_append}, backend.place(),
              MemTag::kWorkspace),
      host_(static_cast<std::size_t>(tiles_ + 2 * max_append)) {}

std::int64_t PassInputs::bytes(std::int64_t max_append) {
  return (most_tiles(max_append) + 2 * max_append) * size_of(DType::kI32);
}

void PassInputs::take_tokens(std::span<const Token> tokens) {
  const auto n = static_cast<std::int64_t>(tokens.size());
  TF_CHECK(tiles_ + 2 * n <= static_cast<std::int64_t>(host_.size()), "pass of {} tokens", n);
  std::copy(tokens.begin(), tokens.end(), host_.begin() + tiles_ + n);
  taken_ = n;
}

TensorView PassInputs::tokens() const { return device_.view().rows(tiles_ + n_, fed_); }

void PassInputs::set(std::int64_t first_position, std::int64_t n, std::int64_t before,
                     std::int64_t tile_rows) {
  TF_CHECK(first_position + n <= std::numeric_limits<std::int32_t>::max());
  TF_CHECK(n >= 1 && tiles_ + 2 * n <= static_cast<std::int64_t>(host_.size()), "pass of {} rows",
           n);
  TF_CHECK(taken_ == 0 || taken_ == n, "{} tokens for a pass of {} rows", taken_, n);
  const std::int64_t tiles = ceil_div(n, tile_rows);
  TF_CHECK(tiles == 1 || tile_rows > kMaxBatchInvariantRows, "{} tiles of {} rows", tiles,
           tile_rows);
  n_ = n;
  fed_ = std::exchange(taken_, 0);
  for (std::int64_t t = 0; t < tiles; ++t) {
    host_[static_cast<std::size_t>(tiles_ - 1 - t)] =
        static_cast<std::int32_t>(before + std::min(n, (t + 1) * tile_rows));
  }
  const auto positions = host_.begin() + tiles_;
  std::iota(positions, positions + n, static_cast<std::int32_t>(first_position));
  const std::int64_t first = tiles_ - tiles, count = tiles + n + fed_;
  b_.upload(device_.view().rows(first, count),
            make_view(host_.data() + first, DType::kI32, {count}));
}

}  // namespace triforce
