#include "model/stored_cache.h"

#include <algorithm>
#include <utility>

#include "model/full_cache.h"

namespace triforce {

StoredCache::StoredCache(Backend& backend, KvStorage storage, std::int64_t max_append,
                         const SharedLayers& shared)
    : b_(backend),
      storage_(std::move(storage)),
      homes_(static_cast<std::size_t>(storage_.layers())),
      max_append_(max_append) {
  add_home(storage_);
  kept_.reserve(kMaxHomes * homes_.size());
  if (shared.count > 0) dense_.emplace(backend, shared, max_append);
}

void StoredCache::add_home(const KvStorage& storage) {
  for (int l = 0; l < storage.layers(); ++l) {
    const KvView kv = storage.layer(l);
    if (kv.kv_heads == 0) continue;
    std::vector<KvView>& of_layer = homes_.at(static_cast<std::size_t>(l));
    const auto comes_later = [&](const KvView& v) { return v.first_head > kv.first_head; };
    of_layer.insert(std::ranges::find_if(of_layer, comes_later), kv);
  }
}

void StoredCache::lease(std::int64_t pass_rows, std::int64_t context, int heads, int chunk) {
  lease_.emplace(b_, scratch_shape(pass_rows, context, heads, storage_.kv_heads(),
                                   storage_.head_dim(), chunk));
}

Backend::ScratchShape StoredCache::scratch_shape(std::int64_t pass_rows, std::int64_t context,
                                                 int heads, int kv_heads, int head_dim, int chunk) {
  return {.rows = pass_rows,
          .context = context,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .chunk_size = chunk};
}

std::span<const Placement> StoredCache::begin(std::int64_t n, std::int64_t /*tile_rows*/,
                                              RowPath /*path*/) {
  TF_CHECK(appending_ == 0 && n >= 0 && n <= max_append_, "append of {} rows, at most {}", n,
           max_append_);
  check_room(n);
  const std::int64_t before = rows();
  placements_.front() = {storage_.format().rotate_on_read ? before : length_, before};
  appending_ = n;
  if (!dense_) return std::span(placements_).first(1);
  placements_.back() = dense_->begin(length_, n);
  return placements_;
}

KvView StoredCache::range(int l, int i, int /*tile*/) {
  if (is_dense(l)) return dense_->range(l, i);
  return homes(l)[static_cast<std::size_t>(i)];
}

void StoredCache::end() {
  if (dense_) dense_->end();
  length_ += appending_;
  appending_ = 0;
}

void StoredCache::cancel() {
  if (dense_) dense_->end();
  appending_ = 0;
}

void StoredCache::truncate(std::int64_t length) {
  TF_CHECK(length >= committed() && length <= length_, "truncate to {} of [{}, {}]", length,
           committed(), length_);
  length_ = length;
}

void StoredCache::hand_over(FullCache& full, std::int64_t length) const {
  const std::int64_t from = full.length(), n = length - from;
  TF_CHECK(from >= committed() && length <= length_, "tokens [{}, {}) of [{}, {})", from, length,
           committed(), length_);
  if (n <= 0) return;
  const std::int64_t row = rows() - (length_ - from);
  for (int l = dense_layers(); l < storage_.layers(); ++l) {
    full.layer(l).write(storage_.layer(l), row, from, n);
  }
  full.adopt(n);
}

// In the order of homes: those of one number are of one shape in most layers.
void StoredCache::keep(std::int64_t length, std::span<const std::int16_t> path) {
  TF_CHECK(length >= committed() && (path.empty() || length + path.back() < length_),
           "{} tokens kept from {} on of [{}, {})", path.size(), length, committed(), length_);
  for (std::size_t home = 0; home < kMaxHomes; ++home) {
    for (const std::vector<KvView>& of_layer : homes_) {
      if (home < of_layer.size()) kept_.push_back(of_layer[home]);
    }
  }
  keep_rows(rows() - (length_ - length), path);
  // What the full cache has verified of the path it has kept itself.
  const bool dense_rows = dense_ && !path.empty() && dense_->has_fed(length, std::ssize(path));
  for (int l = 0; dense_rows && l < dense_layers(); ++l) {
    for (int i = 0; i < dense_->ranges(l); ++i) kept_.push_back(dense_->range(l, i));
  }
  keep_rows(length, path);
  truncate(length + std::ssize(path));
}

void StoredCache::keep_rows(std::int64_t first, std::span<const std::int16_t> path) {
  const auto alike = [](const KvView& a, const KvView& b) {
    return a.first_head == b.first_head && a.kv_heads == b.kv_heads && a.on_host == b.on_host;
  };
  for (std::span<const KvView> rest = kept_; !rest.empty();) {
    const auto end =
        std::ranges::find_if(rest, [&](const KvView& kv) { return !alike(kv, rest.front()); });
    const auto n = static_cast<std::size_t>(end - rest.begin());
    b_.keep_rows(rest.first(n), first, path);
    rest = rest.subspan(n);
  }
  kept_.clear();
}

void StoredCache::check_commit(std::int64_t length, std::int64_t last) const {
  TF_CHECK(length >= committed() && length <= last, "commit of {} of [{}, {}]", length, committed(),
           last);
}

}  // namespace triforce
