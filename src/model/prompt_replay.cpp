#include "model/prompt_replay.h"

#include "model/full_cache.h"

namespace triforce {

PromptReplay::PromptReplay(Backend& backend, FullCache& full, int layers)
    : full_(full), layers_(backend, {&full, layers}, kMaxBatchInvariantRows) {}

void PromptReplay::begin(std::int64_t n, std::int64_t tile_rows, RowPath /*path*/) {
  TF_CHECK(n >= 1 && length_ + n <= full_.length(), "{} + {} tokens of {}", length_, n,
           full_.length());
  layers_.begin(length_, n, tile_rows);
  appending_ = n;
}

void PromptReplay::end() {
  layers_.end();
  length_ += appending_;
}

std::uint64_t PromptReplay::id() const { return full_.id(); }

}  // namespace triforce
