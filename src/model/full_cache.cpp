#include "model/full_cache.h"

namespace triforce {
namespace {

// The near or the far KV heads of each layer.
std::vector<HeadRange> heads_at(bool near, const std::vector<int>& near_heads, int layers,
                                int kv_heads) {
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

}  // namespace

FullCache::FullCache(Backend& backend, int layers, int kv_heads, int head_dim,
                     std::int64_t capacity, std::int64_t max_append, DType dtype,
                     const std::vector<int>& near_heads)
    : StoredCache(backend,
                  KvStorage(backend, heads_at(true, near_heads, layers, kv_heads), kv_heads,
                            head_dim, capacity, dtype, backend.place(), MemTag::kKvFull),
                  max_append, Keys::kRotated),
      far_(backend, heads_at(false, near_heads, layers, kv_heads), kv_heads, head_dim, capacity,
           dtype, Place::kPinned, MemTag::kKvFull) {
  add_home(far_);
  lease(max_append, storage_.capacity(), kv_heads, 0);
}

}  // namespace triforce
