#include "triforce/kv_cache.h"

#include <numeric>

#include "core/rounding.h"

namespace triforce {

KvHeadCounts count_heads(const KvHomes& homes, int layers, int kv_heads) {
  const auto sum = [](const std::vector<int>& heads) {
    return std::accumulate(heads.begin(), heads.end(), std::int64_t{0});
  };
  const std::int64_t all = std::int64_t{layers} * kv_heads;
  KvHeadCounts n;
  n.near = homes.near_heads.empty() ? all : sum(homes.near_heads);
  n.host = sum(homes.host_heads);
  n.bus = all - n.near - n.host;
  return n;
}

void LaneMemory::next_lane() {
  TF_CHECK(next_ == pieces_.size() && lane_ + 1 < lanes_, "{} storages of {} of lane {} of {}",
           next_, pieces_.size(), lane_, lanes_);
  ++lane_;
  next_ = 0;
}

std::shared_ptr<Buffer> LaneMemory::take(Backend& backend, std::int64_t bytes, Place place,
                                         MemTag tag, std::byte*& data) {
  if (lane_ == 0) {
    pieces_.push_back(
        {std::make_shared<Buffer>(backend.allocator(), lanes_ * bytes, place, tag), bytes});
  }
  const Piece& piece = pieces_.at(next_++);
  TF_CHECK(piece.bytes == bytes, "{} bytes of lane {}, {} of the first", bytes, lane_, piece.bytes);
  data = static_cast<std::byte*>(piece.all->data()) + lane_ * bytes;
  return piece.all;
}

KvStorage::KvStorage(Backend& backend, int layers, int kv_heads, int head_dim,
                     std::int64_t capacity, KvFormat format, MemTag tag)
    : KvStorage(backend,
                std::vector<HeadRange>(static_cast<std::size_t>(layers), HeadRange{0, kv_heads}),
                kv_heads, head_dim, capacity, format, backend.place(), tag) {}

KvStorage::KvStorage(Backend& backend, const std::vector<HeadRange>& heads, int kv_heads,
                     int head_dim, std::int64_t capacity, KvFormat format, Place place, MemTag tag,
                     LaneMemory* memory, bool on_host, const KvGroupShape& older)
    : heads_(heads),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      capacity_(round_up(capacity, backend.kv_granule())),
      format_(format),
      older_(older),
      on_host_(on_host) {
  std::int64_t total = 0;
  for (const HeadRange& r : heads_) {
    TF_CHECK(r.first >= 0 && r.count >= 0 && r.first + r.count <= kv_heads,
             "KV heads [{}, {}) of {}", r.first, r.first + r.count, kv_heads);
    heads_before_.push_back(total);
    total += r.count;
  }
  if (total == 0) return;
  bytes_ =
      bytes(1, static_cast<int>(total), head_dim, capacity, format, backend.kv_granule(), older);
  LaneMemory own;
  buffer_ = (memory != nullptr ? *memory : own).take(backend, bytes_, place, tag, data_);
}

std::int64_t KvStorage::bytes(int layers, int kv_heads, int head_dim, std::int64_t capacity,
                              KvFormat format, int granule, const KvGroupShape& older) {
  TF_CHECK(layers > 0 && kv_heads > 0 && head_dim > 0 && capacity > 0 && granule > 0);
  return std::int64_t{layers} * kv_heads *
         (2 * format.bytes(head_dim * round_up(capacity, granule)) + older.bytes(head_dim));
}

KvView KvStorage::layer(int l) const {
  TF_CHECK(l >= 0 && l < layers(), "layer {} of {}", l, layers());
  const HeadRange heads = heads_[static_cast<std::size_t>(l)];
  const std::int64_t head_stride = capacity_ * head_dim_;
  const std::int64_t head_bytes = format_.bytes(head_stride);
  auto* base = data_ + heads_before_[static_cast<std::size_t>(l)] *
                           (2 * head_bytes + older_.bytes(head_dim_));
  KvView kv;
  kv.k = base;
  kv.v = base + heads.count * head_bytes;
  kv.format = format_;
  kv.first_head = heads.first;
  kv.kv_heads = heads.count;
  kv.layer_heads = kv_heads_;
  kv.head_dim = head_dim_;
  kv.capacity = capacity_;
  kv.head_stride = head_stride;
  kv.on_host = on_host_;
  if (older_.groups > 0) {
    auto* const groups = base + 2 * heads.count * head_bytes;
    const std::int64_t keys = kv_group_k_bytes(head_dim_, older_.quantisation);
    kv.older = {.k = groups,
                .v = groups + heads.count * older_.groups * keys,
                .quantisation = older_.quantisation,
                .capacity = older_.groups};
  }
  return kv;
}

TensorView KvStorage::bytes_view() const {
  return make_view(data_, DType::kI32, {bytes_ / size_of(DType::kI32)});
}

LastQueries::LastQueries(Backend& backend, int layers, int heads, int head_dim)
    : b_(backend),
      queries_(backend.allocator(), backend.activation_dtype(), {layers, heads, head_dim},
               backend.place(), MemTag::kActivations) {}

void LastQueries::on_range(int layer, TensorView q, const KvView& kv, TensorView /*mass*/) {
  const std::int64_t heads = q.shape[1], group = heads / kv.kv_heads;
  b_.copy(queries_.view().rows(layer, 1).slice(1, kv.first_head * group, heads),
          q.rows(q.shape[0] - 1, 1));
}

}  // namespace triforce
