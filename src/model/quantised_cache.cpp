// Tests: tests/model/quantised_cache_test.cpp
#include "model/quantised_cache.h"

#include <algorithm>

namespace triforce {

QuantisedCache::QuantisedCache(Backend& backend, FullCache& full, int layers, int heads,
                               int kv_heads, int head_dim, std::int64_t max_pending,
                               KvFormat format, Quantisation by, int dense_layers,
                               LaneMemory& memory)
    : StoredCache(backend,
                  KvStorage(backend, stored_heads(layers, kv_heads, {&full, dense_layers}),
                            kv_heads, head_dim, max_rows(max_pending), format, backend.place(),
                            MemTag::kKvQuantised, &memory, false, groups(full.capacity(), by)),
                  max_pending, {&full, dense_layers}),
      full_(full),
      max_pending_(max_pending) {
  std::byte* data = nullptr;
  used_ = memory.take(backend, size_of(DType::kI32), backend.place(), MemTag::kWorkspace, data);
  used_view_ = make_view(data, DType::kI32, {1});
  const std::int64_t context = groups(full.capacity(), by).groups * kKvGroup + storage_.capacity();
  lease(std::max<std::int64_t>(max_pending, kMaxBatchInvariantRows), context, heads, 0);
}

KvView QuantisedCache::range(int l, int i, int tile) {
  KvView kv = StoredCache::range(l, i, tile);
  if (kv.older) kv.older.used = used_view_.as<std::int32_t>();
  return kv;
}

void QuantisedCache::check_room(std::int64_t n) const {
  const std::int64_t pending = length_ - committed_;
  TF_CHECK(pending + n <= max_pending_, "append of {} rows to {} pending ones, at most {}", n,
           pending, max_pending_);
  TF_CHECK(length_ + n <= capacity(), "{} + {} tokens over a full cache of {}", length_, n,
           capacity());
}

void QuantisedCache::set_groups(std::int64_t groups) {
  if (groups == groups_) return;
  groups_ = groups;
  auto value = static_cast<std::int32_t>(groups);
  b_.upload(used_view_, make_view(&value, DType::kI32, {1}));
}

void QuantisedCache::write_rows(std::int64_t from) {
  const std::int64_t n = committed_ - from;
  for (int l = dense_layers(); n > 0 && l < storage_.layers(); ++l) {
    full_.layer(l).copy(from, storage_.layer(l), from - in_groups(), n);
  }
}

void QuantisedCache::commit(std::int64_t length) {
  check_commit(length, full_.length());
  const std::int64_t before = committed_, old_groups = groups_, new_groups = length / kKvGroup;
  if (length == before) return;
  const std::int64_t moved = std::max<std::int64_t>(length_ - length, 0);
  const std::int64_t row = length - old_groups * kKvGroup;
  for (int l = dense_layers(); new_groups > old_groups && l < storage_.layers(); ++l) {
    KvView to = storage_.layer(l);
    to.older.used = used_view_.as<std::int32_t>();
    full_.layer(l).quantise(to, old_groups, new_groups);
    if (moved > 0) b_.copy_rows(to, row, to, length - new_groups * kKvGroup, moved);
  }
  set_groups(new_groups);
  committed_ = length;
  length_ = std::max(length_, length);
  write_rows(std::max(before, in_groups()));
}

void QuantisedCache::mark() {
  commit(length_);
  marked_ = committed_;
}

void QuantisedCache::rewind() {
  set_groups(marked_ / kKvGroup);
  length_ = committed_ = marked_;
  write_rows(in_groups());
}

void QuantisedCache::reset() {
  set_groups(0);
  length_ = committed_ = marked_ = 0;
}

}  // namespace triforce
