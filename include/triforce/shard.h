// Tensor parallelism: which part of a model one rank holds. A rank is a process; ranks share a
// model by splitting each layer's heads and intermediate features (arXiv 1909.08053, section 3).
#pragma once
#include <cstdint>

#include "triforce/checkpoint.h"
#include "triforce/rank.h"

namespace triforce {

// Elements [begin, begin + count).
struct Part {
  std::int64_t begin = 0, count = 0;
};
// The shard's part of n elements: the parts of all ranks follow each other and differ by one
// element at most.
Part part_of(std::int64_t n, const Shard& shard);

// A layer as one rank computes it: KV heads with their query heads, and intermediate features. The
// sizes of a ModelConfig that are not here (hidden, vocab, layers) are the same on every rank.
struct LocalShape {
  int heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t intermediate = 0;

  std::int64_t query_width() const { return std::int64_t{heads} * head_dim; }
  std::int64_t kv_width() const { return std::int64_t{kv_heads} * head_dim; }
  std::int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
};

// Throws Error(kUsage) unless `ranks` divides the KV heads, and leaves each rank intermediate
// features.
void check_ranks(const ModelConfig& config, int ranks);
// check_ranks(config, shard.size) holds.
LocalShape local_shape(const ModelConfig& config, const Shard& shard);

// ModelConfig::weight_bytes() and kv_bytes_per_token() of what one rank holds.
std::int64_t weight_bytes(const ModelConfig& config, const Shard& shard, DType dtype);
std::int64_t kv_bytes_per_token(const ModelConfig& config, const Shard& shard, DType dtype);

}  // namespace triforce
