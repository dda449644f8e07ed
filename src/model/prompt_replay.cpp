#include "model/prompt_replay.h"

#include "model/full_cache.h"

namespace triforce {

PromptReplay::PromptReplay(Backend& backend, FullCache& full, int layers)
    : full_(full), layers_(backend, {&full, layers}, kMaxBatchInvariantRows) {}

std::span<const Placement> PromptReplay::begin(std::int64_t n, std::int64_t /*tile_rows*/,
                                               RowPath /*path*/) {
  TF_CHECK(n >= 1 && length_ + n <= full_.length(), "{} + {} tokens of {}", length_, n,
           full_.length());
  placement_ = layers_.begin(length_, n);
  appending_ = n;
  return {&placement_, 1};
}

void PromptReplay::end() {
  layers_.end();
  length_ += appending_;
}

std::uint64_t PromptReplay::id() const { return full_.id(); }

}  // namespace triforce
