#include "model/streaming_cache.h"

#include <algorithm>

namespace triforce {

StreamingCache::StreamingCache(Backend& backend, int layers, int kv_heads, int head_dim,
                               std::int64_t budget, std::int64_t max_append, DType type,
                               const SharedLayers& shared, LaneMemory* memory,
                               std::optional<std::int64_t> sinks)
    : StoredCache(backend,
                  KvStorage(backend, stored_heads(layers, kv_heads, shared), kv_heads, head_dim,
                            budget + max_append, KvFormat(type, true), backend.place(),
                            MemTag::kKvStreaming, memory),
                  max_append, shared),
      marked_rows_(backend, stored_heads(layers, kv_heads, shared), kv_heads, head_dim,
                   budget + max_append, KvFormat(type, true), backend.place(), MemTag::kKvStreaming,
                   memory),
      budget_(budget),
      sinks_(sinks.value_or(std::min(round_up(kSinks, backend.kv_granule()), budget / 2))),
      step_(budget - sinks_ >= 2 * backend.kv_granule() ? backend.kv_granule() : 1) {
  TF_CHECK(budget >= 1 && sinks_ <= budget, "streaming budget of {} tokens, {} of them sinks",
           budget, sinks_);
  lease(max_append, storage_.capacity(), kv_heads, 0);
}

void StreamingCache::check_room(std::int64_t n) const {
  TF_CHECK(rows() + n <= budget_ + max_append(),
           "append of {} rows to {} in a streaming cache of {} + {}", n, rows(), budget_,
           max_append());
}

// Drops rows after the sinks until the committed ones fit.
void StreamingCache::evict() {
  const std::int64_t surplus = state_.committed - state_.evicted - budget_;
  if (surplus <= 0) return;
  const std::int64_t drop = round_up(surplus, step_);
  for (int l = dense_layers(); l < storage_.layers(); ++l) {
    const KvView kv = storage_.layer(l);
    b_.copy_rows(kv, sinks_ + drop, kv, sinks_, rows() - sinks_ - drop);
  }
  state_.evicted += drop;
}

void StreamingCache::commit(std::int64_t length) {
  check_commit(length, length_);
  state_.committed = length;
  evict();
}

HeldTokens StreamingCache::held(std::int64_t position) const {
  HeldTokens h = HeldTokens::all(position);
  h.dense_layers = dense_layers();
  h.first = sinks_;
  h.last_from = first_recent();
  return h;
}

void StreamingCache::mark() {
  commit(length_);
  b_.copy(marked_rows_.bytes_view(), storage_.bytes_view());
  marked_ = state_;
}

void StreamingCache::rewind() {
  b_.copy(storage_.bytes_view(), marked_rows_.bytes_view());
  state_ = marked_;
  length_ = state_.committed;
}

void StreamingCache::reset() {
  state_ = marked_ = {};
  length_ = 0;
}

}  // namespace triforce
