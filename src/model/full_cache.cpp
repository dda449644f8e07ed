#include "model/full_cache.h"

#include <algorithm>
#include <utility>

namespace triforce {
namespace {

// The near or the far KV heads of each layer.
std::vector<HeadRange> heads_at(bool near, const KvHomes& homes, int layers, int kv_heads) {
  const std::vector<int>& near_heads = homes.near_heads;
  TF_CHECK(near_heads.empty() || near_heads.size() == static_cast<std::size_t>(layers),
           "homes of {} layers, {} in all", near_heads.size(), layers);
  std::vector<HeadRange> ranges;
  for (int l = 0; l < layers; ++l) {
    const int n = near_heads.empty() ? kv_heads : near_heads[static_cast<std::size_t>(l)];
    TF_CHECK(n >= 0 && n <= kv_heads, "layer {}: {} near KV heads of {}", l, n, kv_heads);
    ranges.push_back(near ? HeadRange{0, n} : HeadRange{n, kv_heads - n});
  }
  return ranges;
}

// One by one, in the order of a pass.
std::vector<KvView> single_heads(const KvStorage& storage) {
  std::vector<KvView> heads;
  for (int l = 0; l < storage.layers(); ++l) {
    const KvView kv = storage.layer(l);
    for (int h = 0; h < kv.kv_heads; ++h) heads.push_back(kv.heads(kv.first_head + h, 1));
  }
  return heads;
}

}  // namespace

FullCache::FullCache(Backend& backend, int layers, int kv_heads, int head_dim,
                     std::int64_t capacity, std::int64_t max_append, DType dtype,
                     const KvHomes& homes)
    : StoredCache(backend,
                  KvStorage(backend, heads_at(true, homes, layers, kv_heads), kv_heads, head_dim,
                            capacity, dtype, backend.place(), MemTag::kKvFull),
                  max_append, Keys::kRotated),
      far_(backend, heads_at(false, homes, layers, kv_heads), kv_heads, head_dim, capacity, dtype,
           Place::kPinned, MemTag::kKvFar) {
  add_home(far_);
  std::vector<KvView> far = single_heads(far_);
  if (homes.slots > 0 && !far.empty()) ring_.emplace(backend, std::move(far), homes.slots);
  for (int l = 0, before = 0; l < layers; ++l) {
    far_before_.push_back(static_cast<std::size_t>(before));
    before += far_.layer(l).kv_heads;
  }
  // Longer passes are those of a model, which has scratch for its own.
  lease(std::min<std::int64_t>(max_append, kMaxBatchInvariantRows), storage_.capacity(), kv_heads,
        0);
}

void FullCache::begin(std::int64_t n, std::int64_t tile_rows) {
  StoredCache::begin(n, tile_rows);
  if (ring_) ring_->begin(length_, n, tile_rows);
}

int FullCache::runs(int l) const {
  const int near_runs = storage_.layer(l).kv_heads > 0 ? 1 : 0;
  return ring_ ? near_runs + far_.layer(l).kv_heads : StoredCache::runs(l);
}

std::optional<std::size_t> FullCache::ring_head(int l, int i) const {
  const int far = i - (storage_.layer(l).kv_heads > 0 ? 1 : 0);
  if (!ring_ || far < 0) return std::nullopt;
  return far_before_[static_cast<std::size_t>(l)] + static_cast<std::size_t>(far);
}

KvView FullCache::run(int l, int i, int tile) {
  const std::optional<std::size_t> head = ring_head(l, i);
  if (!head) return StoredCache::run(l, i, tile);
  KvView kv = ring_->use(*head, tile);
  kv.length = inputs_.length(tile);
  return kv;
}

void FullCache::done(int l, int i, int tile) {
  if (const std::optional<std::size_t> head = ring_head(l, i)) ring_->done(*head, tile);
}

void FullCache::end() {
  StoredCache::end();
  if (ring_) ring_->end();
}

void FullCache::cancel() {
  StoredCache::cancel();
  if (ring_) ring_->cancel();
}

void FullCache::truncate(std::int64_t length) {
  StoredCache::truncate(length);
  if (ring_) ring_->truncate(length);
}

void FullCache::start_from(std::int64_t length) {
  length_ = committed_ = marked_ = length;
  if (ring_) ring_->truncate(length);
}

void FullCache::rewind() {
  TF_CHECK(committed_ >= marked_);
  start_from(marked_);
}

void FullCache::reset() { start_from(0); }

}  // namespace triforce
