#include "model/kv_pass.h"
#include "triforce/kv_cache.h"

namespace triforce {

struct FullCache::Impl {
  Impl(Backend& b, int layers, int kv_heads, int head_dim, std::int64_t capacity, std::int64_t most,
       DType dtype)
      : storage(b, layers, kv_heads, head_dim, capacity, dtype, MemTag::kKvFull),
        inputs(b, most),
        max_append(most),
        id(next_cache_id()) {}

  KvStorage storage;
  PassInputs inputs;
  std::int64_t max_append;
  std::uint32_t id;
  std::int64_t length = 0, committed = 0, marked = 0;
  std::int64_t appending = 0;  // rows of the pass in progress
};

FullCache::FullCache(Backend& backend, int layers, int kv_heads, int head_dim,
                     std::int64_t capacity, std::int64_t max_append, DType dtype)
    : impl_(std::make_unique<Impl>(backend, layers, kv_heads, head_dim, capacity, max_append,
                                   dtype)) {
  Backend::ScratchShape shape;
  shape.rows = max_append;
  shape.context = impl_->storage.capacity();
  shape.heads = shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  backend.reserve(shape);
}

FullCache::~FullCache() = default;

std::int64_t FullCache::length() const { return impl_->length; }
std::int64_t FullCache::committed() const { return impl_->committed; }
std::int64_t FullCache::capacity() const { return impl_->storage.capacity(); }
std::int64_t FullCache::max_append() const { return impl_->max_append; }
TensorView FullCache::positions() const { return impl_->inputs.positions(); }
std::uint32_t FullCache::id() const { return impl_->id; }

void FullCache::begin(std::int64_t n) {
  Impl& c = *impl_;
  TF_CHECK(c.appending == 0 && n >= 1 && n <= c.max_append, "append of {} rows, at most {}", n,
           c.max_append);
  TF_CHECK(c.length + n <= capacity(), "{} + {} tokens in a full cache of {}", c.length, n,
           capacity());
  c.inputs.set(c.length, n, c.length + n);
  c.appending = n;
}

KvView FullCache::layer(int l) {
  KvView kv = impl_->storage.layer(l);
  kv.length = impl_->inputs.length();
  return kv;
}

void FullCache::end() {
  impl_->length += impl_->appending;
  impl_->appending = 0;
}

void FullCache::truncate(std::int64_t length) {
  Impl& c = *impl_;
  TF_CHECK(length >= c.committed && length <= c.length, "truncate to {} of [{}, {}]", length,
           c.committed, c.length);
  c.length = length;
}

void FullCache::commit(std::int64_t length) {
  Impl& c = *impl_;
  TF_CHECK(length >= c.committed && length <= c.length, "commit of {} of [{}, {}]", length,
           c.committed, c.length);
  c.committed = length;
}

void FullCache::mark() {
  commit(impl_->length);
  impl_->marked = impl_->length;
}

void FullCache::rewind() {
  TF_CHECK(impl_->committed >= impl_->marked);
  impl_->length = impl_->committed = impl_->marked;
}

void FullCache::reset() { impl_->length = impl_->committed = impl_->marked = 0; }

}  // namespace triforce
