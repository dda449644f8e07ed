#pragma once
#include <cstdint>

#include "model/full_cache.h"

namespace triforce {

// The mean keys of a full cache's chunks, in layers [first_layer, layers): the landmarks of
// ShadowKV (arXiv 2410.21465). What selects for each token reads one row of them for a chunk.
class Landmarks {
 public:
  struct Shape {
    int first_layer = 0, layers = 0, kv_heads = 0, head_dim = 0;
    std::int64_t chunks = 0;  // at most
    int chunk_size = 8;       // tokens
    KvFormat format = {};
    std::int64_t bytes(int granule) const;
  };
  // Throws Error(kResources).
  Landmarks(Backend& backend, const Shape& shape);
  // Makes them of the first `chunks` chunks of `full`, but for those that there are. The tokens of
  // these chunks are committed, and stay what they are until forget_beyond().
  void extend(const FullCache& full, std::int64_t chunks);
  // Those beyond the first `chunks` are of other tokens now.
  void forget_beyond(std::int64_t chunks) { chunks_ = std::min(chunks_, chunks); }
  // As RowSource::score() by mean keys, but these are rounded to the cache's type: q[H, d],
  // scores[Hkv, n] of chunks that were made.
  void score(int layer, TensorView q, TensorView scores) const;

 private:
  KvView rows_of(int layer) const;

  Backend& b_;
  Shape shape_;
  std::int64_t capacity_;    // rows of a head, whole granules
  Tensor keys_;              // [layers, Hkv, capacity, d]
  std::int64_t chunks_ = 0;  // that were made
};

}  // namespace triforce
