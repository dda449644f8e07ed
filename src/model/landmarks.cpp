// Tests: tests/model/retrieval_selection_test.cpp, tests/decode/engine_test.cpp
#include "model/landmarks.h"

#include <algorithm>

#include "core/rounding.h"

namespace triforce {

std::int64_t Landmarks::Shape::bytes(int granule) const {
  return format.bytes(std::int64_t{layers - first_layer} * kv_heads * head_dim *
                      round_up(std::max<std::int64_t>(1, chunks), std::int64_t{granule}));
}

Landmarks::Landmarks(Backend& backend, const Shape& shape)
    : b_(backend),
      shape_(shape),
      capacity_(
          round_up(std::max<std::int64_t>(1, shape.chunks), std::int64_t{backend.kv_granule()})),
      keys_(backend.allocator(), shape.format.type,
            {shape.layers - shape.first_layer, shape.kv_heads, capacity_, shape.head_dim},
            backend.place(), MemTag::kKvRetrieval) {
  b_.clear(keys_.view());
}

KvView Landmarks::rows_of(int layer) const {
  KvView kv;
  kv.k = kv.v = keys_.view().rows(layer - shape_.first_layer, 1).data;  // there are no values
  kv.format = shape_.format;
  kv.kv_heads = kv.layer_heads = shape_.kv_heads;
  kv.head_dim = shape_.head_dim;
  kv.capacity = capacity_;
  kv.head_stride = capacity_ * shape_.head_dim;
  return kv;
}

void Landmarks::extend(const FullCache& full, std::int64_t chunks) {
  TF_CHECK(chunks <= shape_.chunks, "{} of {} chunks", chunks, shape_.chunks);
  for (int l = shape_.first_layer; chunks > chunks_ && l < shape_.layers; ++l) {
    full.layer(l).mean_keys(shape_.chunk_size, chunks_, chunks - chunks_, rows_of(l));
  }
  chunks_ = std::max(chunks_, chunks);
}

void Landmarks::score(int layer, TensorView q, TensorView scores) const {
  TF_CHECK(scores.shape[1] <= chunks_, "{} of {} chunks", scores.shape[1], chunks_);
  b_.score_chunks(q, rows_of(layer), 1, scores.shape[1], scores, ChunkRule::kMeanKey);
}

}  // namespace triforce
