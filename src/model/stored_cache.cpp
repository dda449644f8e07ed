#include "model/stored_cache.h"

#include <limits>
#include <numeric>
#include <utility>

namespace triforce {

PassInputs::PassInputs(Backend& backend, std::int64_t max_append)
    : b_(backend),
      device_(backend.allocator(), DType::kI32, {1 + max_append}, backend.place(),
              MemTag::kWorkspace),
      host_(static_cast<std::size_t>(1 + max_append)) {}

void PassInputs::set(std::int64_t first_position, std::int64_t n, std::int64_t length) {
  TF_CHECK(first_position + n <= std::numeric_limits<std::int32_t>::max());
  TF_CHECK(n >= 1 && n < static_cast<std::int64_t>(host_.size()), "pass of {} rows", n);
  n_ = n;
  host_[0] = static_cast<std::int32_t>(length);
  std::iota(host_.begin() + 1, host_.begin() + 1 + n, static_cast<std::int32_t>(first_position));
  b_.upload(device_.view().rows(0, 1 + n), make_view(host_.data(), DType::kI32, {1 + n}));
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

void StoredCache::begin(std::int64_t n) {
  TF_CHECK(appending_ == 0 && n >= 1 && n <= max_append_, "append of {} rows, at most {}", n,
           max_append_);
  check_room(n);
  const std::int64_t before = rows();
  inputs_.set(keys_ == Keys::kRotated ? length_ : before, n, before + n);
  appending_ = n;
}

KvView StoredCache::run(int l, int i) {
  KvView kv = homes(l)[static_cast<std::size_t>(i)];
  kv.length = inputs_.length();
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
