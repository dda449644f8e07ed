#include "model/pass_inputs.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/rounding.h"

namespace triforce {
namespace {

// Lengths, and rows of several parts.
std::int64_t max_numbers(std::int64_t max_tokens, std::int64_t tile_rows) {
  return std::max<std::int64_t>(ceil_div(max_tokens, tile_rows) * kMaxPlacements,
                                (kMaxPlacements + 1) * kMaxSequences);
}
std::int64_t elements(std::int64_t max_tokens, std::int64_t tile_rows) {
  return max_numbers(max_tokens, tile_rows) + (kMaxPlacements + 1) * max_tokens;
}

}  // namespace

PassInputs::PassInputs(Backend& backend, std::int64_t max_tokens, std::int64_t tile_rows)
    : b_(backend),
      tile_rows_(tile_rows),
      numbers_(max_numbers(max_tokens, tile_rows)),
      device_(backend.allocator(), DType::kI32, {elements(max_tokens, tile_rows)}, backend.place(),
              MemTag::kWorkspace),
      host_(static_cast<std::size_t>(elements(max_tokens, tile_rows))) {}

std::int64_t PassInputs::bytes(std::int64_t max_tokens, std::int64_t tile_rows) {
  return elements(max_tokens, tile_rows) * size_of(DType::kI32);
}

TensorView PassInputs::tokens() const {
  return device_.view().rows(numbers_ + placements_ * n_, n_);
}

TensorView PassInputs::positions(int placement) const {
  return device_.view().rows(numbers_ + placement * n_, n_);
}

void PassInputs::set(std::span<const Part> parts) {
  std::int64_t each = 0;
  for (const Part& p : parts) each = std::max(each, static_cast<std::int64_t>(p.tokens.size()));
  parts_ = static_cast<std::int64_t>(parts.size());
  placements_ = static_cast<int>(parts.front().placements.size());
  n_ = parts_ * each;
  const auto tiles = static_cast<int>(ceil_div(n_, tile_rows_));
  const std::int64_t used = tiles * placements_ * parts_ + (parts_ > 1 ? parts_ : 0);
  const std::int64_t room = static_cast<std::int64_t>(host_.size()) - numbers_;
  TF_CHECK(n_ >= 1 && (kMaxPlacements + 1) * n_ <= room && used <= numbers_ &&
               (parts_ == 1 || tiles == 1),
           "pass of {} parts of {} rows in {} tiles, at most {} rows", parts_, each, tiles,
           room / (kMaxPlacements + 1));
  first_ = numbers_ - used;
  const auto number = [&](std::int64_t i, std::size_t part) -> std::int32_t& {
    return host_[static_cast<std::size_t>(first_ + i * parts_) + part];
  };
  const std::int64_t uploaded = used + (placements_ + 1) * n_;
  std::fill_n(host_.begin() + first_, uploaded, 0);
  for (std::size_t s = 0; s < parts.size(); ++s) {
    const Part& part = parts[s];
    TF_CHECK(part.placements.size() == static_cast<std::size_t>(placements_) && placements_ > 0 &&
                 placements_ <= kMaxPlacements,
             "{} placements", part.placements.size());
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    // The part's rows of the first array behind the numbers; the next begins n_ on.
    auto to = host_.begin() + numbers_ + (static_cast<std::int64_t>(s) + 1) * each - count;
    for (int p = 0; p < placements_; ++p, to += n_) {
      const Placement& place = part.placements[static_cast<std::size_t>(p)];
      TF_CHECK(place.first_position + count <= std::numeric_limits<std::int32_t>::max());
      std::iota(to, to + count, static_cast<std::int32_t>(place.first_position));
      for (int t = 0; t < tiles; ++t) {
        const std::int64_t with_tile = place.before + std::min(count, (t + 1) * tile_rows_);
        number(t * placements_ + p, s) = count > 0 ? static_cast<std::int32_t>(with_tile) : 0;
      }
    }
    std::copy(part.tokens.begin(), part.tokens.end(), to);
    if (parts_ > 1) number(placements_, s) = static_cast<std::int32_t>(count);
  }
  b_.upload(device_.view().rows(first_, uploaded),
            make_view(host_.data() + first_, DType::kI32, {uploaded}));
}

}  // namespace triforce
