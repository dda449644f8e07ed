#include <algorithm>
#include <limits>

#include "model/kv_pass.h"
#include "triforce/kv_cache.h"

namespace triforce {

// Row r holds token r below `sinks` and token r + evicted from there on.
struct StreamingCache::Impl {
  Impl(Backend& backend, int layers, int kv_heads, int head_dim, std::int64_t budget_tokens,
       std::int64_t most, DType dtype)
      : b(backend),
        storage(b, layers, kv_heads, head_dim, budget_tokens + most, dtype, MemTag::kKvStreaming),
        shadow(b, layers, kv_heads, head_dim, budget_tokens + most, dtype, MemTag::kKvStreaming),
        inputs(b, most),
        budget(budget_tokens),
        max_append(most),
        granule(b.kv_granule()),
        sinks(round_up(kSinks, granule)),
        id(next_cache_id()) {
    TF_CHECK(budget >= sinks + 2 * granule, "streaming budget of {} tokens, at least {}", budget,
             sinks + 2 * granule);
  }

  std::int64_t rows() const { return state.length - state.evicted; }
  void evict();

  struct State {
    std::int64_t length = 0, evicted = 0;
  };

  Backend& b;
  KvStorage storage, shadow;
  PassInputs inputs;
  std::int64_t budget, max_append, granule, sinks;
  std::uint32_t id;
  State state, marked;
  std::int64_t committed = 0;
  std::int64_t appending = 0;
};

// Drops whole granules after the sinks until the committed rows fit.
void StreamingCache::Impl::evict() {
  const std::int64_t surplus = committed - state.evicted - budget;
  if (surplus <= 0) return;
  const std::int64_t drop = round_up(surplus, granule);
  for (int l = 0; l < storage.layers(); ++l) {
    const KvView kv = storage.layer(l);
    b.copy_rows(kv, sinks + drop, kv, sinks, rows() - sinks - drop);
  }
  state.evicted += drop;
}

StreamingCache::StreamingCache(Backend& backend, int layers, int kv_heads, int head_dim,
                               std::int64_t budget, std::int64_t max_append, DType dtype)
    : impl_(
          std::make_unique<Impl>(backend, layers, kv_heads, head_dim, budget, max_append, dtype)) {
  Backend::ScratchShape shape;
  shape.rows = max_append;
  shape.context = impl_->storage.capacity();
  shape.heads = shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  backend.reserve(shape);
}

StreamingCache::~StreamingCache() = default;

std::int64_t StreamingCache::length() const { return impl_->state.length; }
std::int64_t StreamingCache::committed() const { return impl_->committed; }
std::int64_t StreamingCache::capacity() const { return std::numeric_limits<std::int64_t>::max(); }
std::int64_t StreamingCache::max_append() const { return impl_->max_append; }
TensorView StreamingCache::positions() const { return impl_->inputs.positions(); }
std::uint32_t StreamingCache::id() const { return impl_->id; }

void StreamingCache::begin(std::int64_t n) {
  Impl& c = *impl_;
  TF_CHECK(c.appending == 0 && n >= 1 && c.rows() + n <= c.budget + c.max_append,
           "append of {} rows to {} in a streaming cache of {} + {}", n, c.rows(), c.budget,
           c.max_append);
  c.inputs.set(c.rows(), n, c.rows() + n);
  c.appending = n;
}

KvView StreamingCache::layer(int l) {
  KvView kv = impl_->storage.layer(l);
  kv.length = impl_->inputs.length();
  kv.rotate_on_read = true;
  return kv;
}

void StreamingCache::end() {
  impl_->state.length += impl_->appending;
  impl_->appending = 0;
}

void StreamingCache::truncate(std::int64_t length) {
  Impl& c = *impl_;
  TF_CHECK(length >= c.committed && length <= c.state.length, "truncate to {} of [{}, {}]", length,
           c.committed, c.state.length);
  c.state.length = length;
}

void StreamingCache::commit(std::int64_t length) {
  Impl& c = *impl_;
  TF_CHECK(length >= c.committed && length <= c.state.length, "commit of {} of [{}, {}]", length,
           c.committed, c.state.length);
  c.committed = length;
  c.evict();
}

void StreamingCache::mark() {
  Impl& c = *impl_;
  commit(c.state.length);
  c.b.copy(c.shadow.bytes_view(), c.storage.bytes_view(), Queue::kCompute);
  c.marked = c.state;
}

void StreamingCache::rewind() {
  Impl& c = *impl_;
  c.b.copy(c.storage.bytes_view(), c.shadow.bytes_view(), Queue::kCompute);
  c.state = c.marked;
  c.committed = c.marked.length;
}

void StreamingCache::reset() {
  impl_->state = impl_->marked = {};
  impl_->committed = 0;
}

}  // namespace triforce
