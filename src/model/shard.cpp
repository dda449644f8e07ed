#include "triforce/shard.h"

namespace triforce {
namespace {

// A model of which the shard would be the whole: sizes add up as those of any other.
ModelConfig as_whole(const ModelConfig& config, const Shard& shard) {
  const LocalShape local = local_shape(config, shard);
  ModelConfig c = config;
  c.heads = local.heads;
  c.kv_heads = local.kv_heads;
  c.intermediate = local.intermediate;
  return c;
}

}  // namespace

Part part_of(std::int64_t n, const Shard& s) {
  TF_CHECK(s.rank >= 0 && s.rank < s.size, "rank {} of {}", s.rank, s.size);
  const std::int64_t begin = n * s.rank / s.size, end = n * (s.rank + 1) / s.size;
  return {begin, end - begin};
}

void check_ranks(const ModelConfig& c, int ranks) {
  if (ranks < 1 || c.kv_heads % ranks != 0) {
    throw_usage("--tp: expected a divisor of the {} KV heads of {}, found {}", c.kv_heads, c.name,
                ranks);
  }
  if (ranks > c.intermediate) {
    throw_usage("--tp: expected at most the {} intermediate features of {}, found {}",
                c.intermediate, c.name, ranks);
  }
}

LocalShape local_shape(const ModelConfig& c, const Shard& s) {
  const Part kv_heads = part_of(c.kv_heads, s);
  TF_CHECK(c.kv_heads % s.size == 0, "{} KV heads over {} ranks", c.kv_heads, s.size);
  const int n = static_cast<int>(kv_heads.count);
  return {n * (c.heads / c.kv_heads), n, c.head_dim, part_of(c.intermediate, s).count};
}

std::int64_t weight_bytes(const ModelConfig& config, const Shard& shard, DType dtype) {
  return as_whole(config, shard).weight_bytes(dtype);
}

std::int64_t kv_bytes_per_token(const ModelConfig& config, const Shard& shard, DType dtype) {
  return as_whole(config, shard).kv_bytes_per_token(dtype);
}

}  // namespace triforce
