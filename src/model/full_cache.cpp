#include "model/full_cache.h"

namespace triforce {

FullCache::FullCache(Backend& backend, int layers, int kv_heads, int head_dim,
                     std::int64_t capacity, std::int64_t max_append, DType dtype)
    : StoredCache(backend, layers, kv_heads, head_dim, capacity, max_append, dtype, MemTag::kKvFull,
                  Keys::kRotated) {
  lease(max_append, storage_.capacity(), kv_heads, 0);
}

void FullCache::check_room(std::int64_t n) const {
  TF_CHECK(length_ + n <= capacity(), "{} + {} tokens in a full cache of {}", length_, n,
           capacity());
}

void FullCache::commit(std::int64_t length) {
  check_commit(length, length_);
  committed_ = length;
}

void FullCache::mark() { committed_ = marked_ = length_; }

void FullCache::rewind() {
  TF_CHECK(committed_ >= marked_);
  length_ = committed_ = marked_;
}

void FullCache::reset() { length_ = committed_ = marked_ = 0; }

}  // namespace triforce
