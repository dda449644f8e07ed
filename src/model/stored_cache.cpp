#include "model/stored_cache.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/rounding.h"

namespace triforce {

namespace {

std::int64_t most_tiles(std::int64_t max_append) {
  return ceil_div(max_append, kMaxBatchInvariantRows);
}

}  // namespace

PassInputs::PassInputs(Backend& backend, std::int64_t max_append)
    : b_(backend),
      tiles_(most_tiles(max_append)),
      device_(backend.allocator(), DType::kI32, {tiles_ + max_append}, backend.place(),
              MemTag::kWorkspace),
      host_(static_cast<std::size_t>(tiles_ + max_append)) {}

std::int64_t PassInputs::bytes(std::int64_t max_append) {
  return (most_tiles(max_append) + max_append) * size_of(DType::kI32);
}

void PassInputs::set(std::int64_t first_position, std::int64_t n, std::int64_t before,
                     std::int64_t tile_rows) {
  TF_CHECK(first_position + n <= std::numeric_limits<std::int32_t>::max());
  TF_CHECK(n >= 1 && tiles_ + n <= static_cast<std::int64_t>(host_.size()), "pass of {} rows", n);
  const std::int64_t tiles = ceil_div(n, tile_rows);
  TF_CHECK(tiles == 1 || tile_rows > kMaxBatchInvariantRows, "{} tiles of {} rows", tiles,
           tile_rows);
  n_ = n;
  for (std::int64_t t = 0; t < tiles; ++t) {
    host_[static_cast<std::size_t>(tiles_ - 1 - t)] =
        static_cast<std::int32_t>(before + std::min(n, (t + 1) * tile_rows));
  }
  const auto positions = host_.begin() + tiles_;
  std::iota(positions, positions + n, static_cast<std::int32_t>(first_position));
  const std::int64_t first = tiles_ - tiles, count = tiles + n;
  b_.upload(device_.view().rows(first, count),
            make_view(host_.data() + first, DType::kI32, {count}));
}

StoredCache::StoredCache(Backend& backend, KvStorage storage, std::int64_t max_append, Keys keys)
    : b_(backend),
      storage_(std::move(storage)),
      inputs_(backend, max_append),
      keys_(keys),
      homes_(static_cast<std::size_t>(storage_.layers())),
      max_append_(max_append) {
  add_home(storage_);
}

void StoredCache::add_home(const KvStorage& storage) {
  for (int l = 0; l < storage.layers(); ++l) {
    const KvView kv = storage.layer(l);
    if (kv.kv_heads > 0) homes_.at(static_cast<std::size_t>(l)).push_back(kv);
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

void StoredCache::begin(std::int64_t n, std::int64_t tile_rows) {
  TF_CHECK(appending_ == 0 && n >= 1 && n <= max_append_, "append of {} rows, at most {}", n,
           max_append_);
  check_room(n);
  const std::int64_t before = rows();
  inputs_.set(keys_ == Keys::kRotated ? length_ : before, n, before, tile_rows);
  appending_ = n;
}

KvView StoredCache::run(int l, int i, int tile) {
  KvView kv = homes(l)[static_cast<std::size_t>(i)];
  kv.length = inputs_.length(tile);
  kv.rotate_on_read = keys_ == Keys::kRotatedOnRead;
  return kv;
}

void StoredCache::end() {
  length_ += appending_;
  appending_ = 0;
}

void StoredCache::truncate(std::int64_t length) {
  TF_CHECK(length >= committed() && length <= length_, "truncate to {} of [{}, {}]", length,
           committed(), length_);
  length_ = length;
}

void StoredCache::check_commit(std::int64_t length, std::int64_t last) const {
  TF_CHECK(length >= committed() && length <= last, "commit of {} of [{}, {}]", length, committed(),
           last);
}

}  // namespace triforce
