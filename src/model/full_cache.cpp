#include "model/full_cache.h"

#include <algorithm>
#include <utility>

#include "core/rounding.h"

namespace triforce {
namespace {

// KV heads of each layer in the order of KvHomes.
struct Ranges {
  std::vector<HeadRange> host, near, far;
};

Ranges ranges_of(const KvHomes& homes, int layers, int kv_heads) {
  const auto count = [&](const std::vector<int>& heads, int l, int otherwise) {
    TF_CHECK(heads.empty() || heads.size() == static_cast<std::size_t>(layers),
             "homes of {} layers, {} in all", heads.size(), layers);
    return heads.empty() ? otherwise : heads[static_cast<std::size_t>(l)];
  };
  Ranges r;
  for (int l = 0; l < layers; ++l) {
    const int host = count(homes.host_heads, l, 0), near = count(homes.near_heads, l, kv_heads);
    TF_CHECK(host >= 0 && near >= 0 && host + near <= kv_heads,
             "layer {}: {} KV heads on the host, {} near ones of {}", l, host, near, kv_heads);
    r.host.push_back({0, host});
    r.near.push_back({host, near});
    r.far.push_back({host + near, kv_heads - host - near});
  }
  return r;
}

void add_single_heads(const KvView& kv, std::vector<KvView>& heads) {
  for (int h = 0; h < kv.kv_heads; ++h) heads.push_back(kv.heads(kv.first_head + h, 1));
}

}  // namespace

FullCache::FullCache(Backend& backend, int layers, int kv_heads, int head_dim,
                     std::int64_t capacity, std::int64_t max_append, KvFormat format,
                     const KvHomes& homes, LaneMemory* memory)
    : StoredCache(backend,
                  KvStorage(backend, ranges_of(homes, layers, kv_heads).near, kv_heads, head_dim,
                            capacity, format, backend.place(), MemTag::kKvFull, memory),
                  max_append),
      host_(backend, ranges_of(homes, layers, kv_heads).host, kv_heads, head_dim, capacity, format,
            Place::kPinned, MemTag::kKvFar, memory, true),
      far_(backend, ranges_of(homes, layers, kv_heads).far, kv_heads, head_dim, capacity, format,
           Place::kPinned, MemTag::kKvFar, memory),
      kv_heads_(kv_heads),
      capacity_(storage_.capacity()) {
  add_home(host_);
  add_home(far_);
  if (homes.slots > 0) make_rings(homes.slots, memory);
  short_ranges_ = make_ranges(true);
  long_ranges_ = make_ranges(false);
  for (const std::vector<PassRange>& ranges : short_ranges_) {
    for (const PassRange& r : ranges) recordable_ = recordable_ && !r.ring_head && !r.home.on_host;
  }
  take_lease();
}

// Longer passes are those of a model, which has scratch for its own.
void FullCache::take_lease() {
  lease(std::min<std::int64_t>(max_append(), kMaxBatchInvariantRows), capacity_, kv_heads_, 0);
}

void FullCache::set_capacity(std::int64_t capacity) {
  capacity_ = round_up(capacity, b_.kv_granule());
  TF_CHECK(capacity_ <= storage_.capacity(), "{} tokens in a full cache of {}", capacity,
           storage_.capacity());
  set_capacity_of_homes(capacity_);
  for (PassRanges* const ranges : {&short_ranges_, &long_ranges_}) {
    for (std::vector<PassRange>& of_layer : *ranges) {
      for (PassRange& r : of_layer) r.home.capacity = capacity_;
    }
  }
  if (ring_) ring_->set_capacity(capacity_);
  if (long_ring_) long_ring_->set_capacity(capacity_);
  take_lease();  // passes that were recorded are of another capacity
}

void FullCache::make_rings(int slots, LaneMemory* memory) {
  std::vector<KvView> far, all;
  for (int l = 0; l < storage_.layers(); ++l) {
    add_single_heads(host_.layer(l), all);
    add_single_heads(far_.layer(l), far);
    add_single_heads(far_.layer(l), all);
  }
  if (all.empty()) return;
  const std::size_t n = std::min(all.size(), static_cast<std::size_t>(slots));
  const KvView& kv = all.front();
  slots_.emplace(b_, std::vector<HeadRange>(n, {0, 1}), 1, kv.head_dim, kv.capacity, kv.format,
                 b_.place(), MemTag::kKvFull, memory);
  const bool host_has_some = all.size() > far.size();
  if (!far.empty()) ring_.emplace(b_, std::move(far), *slots_);
  if (host_has_some) long_ring_.emplace(b_, std::move(all), *slots_);
}

FullCache::PassRanges FullCache::make_ranges(bool host_computes) const {
  PassRanges ranges(static_cast<std::size_t>(storage_.layers()));
  std::size_t next_in_ring = 0;
  for (int l = 0; l < storage_.layers(); ++l) {
    std::vector<PassRange>& of_layer = ranges[static_cast<std::size_t>(l)];
    const auto add = [&](const KvView& kv, bool brought) {
      if (kv.kv_heads == 0) return;
      if (!brought) of_layer.push_back({kv, {}});
      for (int h = 0; brought && h < kv.kv_heads; ++h) of_layer.push_back({{}, next_in_ring++});
    };
    const KvView on_host = host_.layer(l);
    TF_CHECK(on_host.kv_heads == 0 || slots_, "KV heads on the host, and no slot to bring them");
    add(on_host, !host_computes);
    add(storage_.layer(l), false);
    add(far_.layer(l), slots_.has_value());
  }
  return ranges;
}

std::span<const Placement> FullCache::begin(std::int64_t n, std::int64_t tile_rows, RowPath path) {
  const std::span<const Placement> placements = StoredCache::begin(n, tile_rows, path);
  if (n > 0) write_tail();
  const bool host_computes = path == RowPath::kInvariant;
  ranges_ = host_computes ? &short_ranges_ : &long_ranges_;
  in_use_ = !host_computes && long_ring_ ? &*long_ring_ : ring_ ? &*ring_ : nullptr;
  if (in_use_ == nullptr) return placements;
  if (last_ != nullptr && last_ != in_use_) in_use_->restart(length_);
  last_ = in_use_;
  in_use_->begin(length_, n, tile_rows, path);
  return placements;
}

int FullCache::destinations(int l) const {
  return ranges_ == &short_ranges_ ? static_cast<int>(homes(l).size()) : 0;
}

KvView FullCache::destination(int l, int i) const { return homes(l)[static_cast<std::size_t>(i)]; }

int FullCache::ranges(int l) const {
  return static_cast<int>((*ranges_)[static_cast<std::size_t>(l)].size());
}

KvView FullCache::range(int l, int i, int tile) {
  const PassRange& r = range_of(l, i);
  return r.ring_head ? in_use_->use(*r.ring_head, tile) : r.home;
}

void FullCache::done(int l, int i, int tile) {
  if (const PassRange& r = range_of(l, i); r.ring_head) in_use_->done(*r.ring_head, tile);
}

void FullCache::end() {
  StoredCache::end();
  if (in_use_ != nullptr) in_use_->end();
}

void FullCache::cancel() {
  StoredCache::cancel();
  if (in_use_ != nullptr) in_use_->restart(0);
}

void FullCache::truncate_rings(std::int64_t rows) {
  if (ring_) ring_->truncate(rows);
  if (long_ring_) long_ring_->truncate(rows);
}

void FullCache::truncate(std::int64_t length) {
  StoredCache::truncate(length);
  truncate_rings(length);
}

void FullCache::keep(std::int64_t length, std::span<const std::int16_t> path) {
  StoredCache::keep(length, path);
  truncate_rings(length);
}

void FullCache::start_from(std::int64_t length) {
  length_ = committed_ = marked_ = length;
  truncate_rings(length);
}

void FullCache::adopt(std::int64_t n) {
  check_room(n);
  write_tail();
  length_ += n;
}

void FullCache::rewind() {
  TF_CHECK(committed_ >= marked_);
  start_from(marked_);
}

void FullCache::reset() { start_from(0); }

void FullCache::forget_from(std::int64_t length) {
  TF_CHECK(length >= 0 && length <= length_, "tokens from {} of {}", length, length_);
  start_from(length);
}

void FullCache::copy_prompt(const FullCache& from) {
  const auto copy = [&](const KvStorage& to, const KvStorage& other) {
    if (to.bytes_view().numel() > 0) b_.copy(to.bytes_view(), other.bytes_view());
  };
  copy(storage_, from.storage_);
  copy(host_, from.host_);
  copy(far_, from.far_);
  write_tail();
  start_from(0);  // what rings hold is of another prompt
  start_from(from.marked_);
}

}  // namespace triforce
