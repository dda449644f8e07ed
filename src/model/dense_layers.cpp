#include "model/dense_layers.h"

#include <algorithm>

#include "model/full_cache.h"

namespace triforce {
namespace {

FullCache& checked(const SharedLayers& s) {
  TF_CHECK(s.full != nullptr && s.count >= 1, "{} layers of {} cache", s.count,
           s.full == nullptr ? "no" : "a");
  for (int l = 0; l < s.count; ++l) {
    const std::span<const KvView> homes = s.full->homes(l);
    TF_CHECK(homes.size() == 1 && homes.front().kv_heads == homes.front().layer_heads,
             "layer {}: {} homes of its KV heads", l, homes.size());
  }
  return *s.full;
}

KvStorage make_saved(Backend& backend, const SharedLayers& s, std::int64_t max_append) {
  const KvView kv = checked(s).homes(0).front();
  return {backend, s.count, kv.layer_heads, kv.head_dim, max_append, kv.format, MemTag::kWorkspace};
}

}  // namespace

std::vector<HeadRange> stored_heads(int layers, int kv_heads, const SharedLayers& shared) {
  TF_CHECK(shared.count >= 0 && shared.count < layers, "{} shared layers of {}", shared.count,
           layers);
  std::vector<HeadRange> heads(static_cast<std::size_t>(layers), {0, kv_heads});
  std::fill_n(heads.begin(), shared.count, HeadRange{});
  return heads;
}

DenseLayers::DenseLayers(Backend& backend, const SharedLayers& shared, std::int64_t max_append)
    : full_(checked(shared)), saved_(make_saved(backend, shared, max_append)) {}

std::int64_t DenseLayers::bytes(int count, int kv_heads, int head_dim, std::int64_t max_append,
                                KvFormat format, int granule) {
  if (count == 0) return 0;
  return KvStorage::bytes(count, kv_heads, head_dim, max_append, format, granule);
}

std::int64_t DenseLayers::capacity() const { return full_.capacity(); }

Placement DenseLayers::begin(std::int64_t length, std::int64_t n) {
  TF_CHECK(length + n <= capacity(), "{} + {} tokens over a full cache of {}", length, n,
           capacity());
  if (n == 0) return {length, length};
  TF_CHECK(length <= full_.length() || full_.tail() == tail_,
           "rows of tokens [{}, {}) were overwritten since", full_.length(), length);
  tail_ = full_.write_tail();
  first_saved_ = length;
  n_saved_ = std::clamp<std::int64_t>(full_.length() - length, 0, n);
  for (int l = 0; l < count(); ++l) {
    full_.layer(l).copy(first_saved_, saved_.layer(l), 0, n_saved_);
  }
  return {length, length};
}

bool DenseLayers::has_fed(std::int64_t length, std::int64_t n) const {
  if (length + n <= full_.length()) return false;
  TF_CHECK(full_.length() <= length && full_.tail() == tail_,
           "rows of tokens [{}, {}) were overwritten since", length, length + n);
  return true;
}

void DenseLayers::end() {
  for (int l = 0; l < count(); ++l) {
    full_.layer(l).write(saved_.layer(l), 0, first_saved_, n_saved_);
  }
  n_saved_ = 0;
}

int DenseLayers::ranges(int l) const { return static_cast<int>(full_.homes(l).size()); }

KvView DenseLayers::range(int l, int i) const {
  return full_.homes(l)[static_cast<std::size_t>(i)];
}

}  // namespace triforce
