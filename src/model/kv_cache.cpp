#include "triforce/kv_cache.h"

#include "core/rounding.h"

namespace triforce {

KvStorage::KvStorage(Backend& backend, int layers, int kv_heads, int head_dim,
                     std::int64_t capacity, DType dtype, MemTag tag)
    : buffer_(backend.allocator(),
              bytes(layers, kv_heads, head_dim, capacity, dtype, backend.kv_granule()),
              backend.place(), tag),
      layers_(layers),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      capacity_(round_up(capacity, backend.kv_granule())),
      dtype_(dtype) {}

std::int64_t KvStorage::bytes(int layers, int kv_heads, int head_dim, std::int64_t capacity,
                              DType dtype, int granule) {
  TF_CHECK(layers > 0 && kv_heads > 0 && head_dim > 0 && capacity > 0 && granule > 0);
  return std::int64_t{2} * layers * kv_heads * head_dim * round_up(capacity, granule) *
         size_of(dtype);
}

KvView KvStorage::layer(int l) const {
  TF_CHECK(l >= 0 && l < layers_, "layer {} of {}", l, layers_);
  const std::int64_t head_stride = capacity_ * head_dim_;
  const std::int64_t half_bytes = head_stride * kv_heads_ * size_of(dtype_);
  auto* base = static_cast<std::byte*>(buffer_.data()) + 2 * l * half_bytes;
  KvView kv;
  kv.k = base;
  kv.v = base + half_bytes;
  kv.dtype = dtype_;
  kv.kv_heads = kv_heads_;
  kv.head_dim = head_dim_;
  kv.capacity = capacity_;
  kv.head_stride = head_stride;
  return kv;
}

TensorView KvStorage::bytes_view() const {
  return make_view(buffer_.data(), DType::kI32, {buffer_.bytes() / size_of(DType::kI32)});
}

LastQueries::LastQueries(Backend& backend, int layers, int heads, int head_dim)
    : b_(backend),
      queries_(backend.allocator(), backend.activation_dtype(), {layers, heads, head_dim},
               backend.place(), MemTag::kActivations) {}

void LastQueries::on_layer(int layer, TensorView q, const KvView& /*kv*/) {
  b_.copy(queries_.view().rows(layer, 1), q.rows(q.shape[0] - 1, 1));
}

}  // namespace triforce
