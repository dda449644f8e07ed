// Scoring and choosing chunks of keys (TriForce, arXiv 2404.11912, section 4.1).
#include <algorithm>
#include <cmath>

#include "core/elements.h"
#include "cpu/attention_kernels.h"
#include "cpu/attention_pass.h"
#include "cpu/falling_rank.h"
#include "cpu/key_rows.h"
#include "cpu/kv_ops.h"

namespace triforce::cpu {
namespace {

// Sorting upwards is best first, lower id first among equals. NaN ranks last.
std::uint64_t rank_of(float score, std::int64_t id) {
  const std::uint32_t rank = std::isnan(score) ? 0xffffffffU : falling_rank(score);
  return std::uint64_t{rank} << 32 | static_cast<std::uint64_t>(id);
}

// scores[begin, end) of one head; q is the sum of the group's queries.
void score_range(const AttentionKernels& kernels, const KvView& kv, std::int64_t head,
                 const float* q, int chunk, std::int64_t begin, std::int64_t end, float* scores) {
  constexpr std::int64_t kKeys = 256;
  float dots[kKeys];
  const std::byte* k = k_head(kv, head);
  const std::int64_t block_bytes = kv.format.bytes(kKeyBlock * kv.head_dim);
  const std::int64_t last = end * chunk;
  std::int64_t key = begin * chunk, scored = begin;
  float sum = 0.0F;
  int in_chunk = 0;
  while (key < last) {
    const std::int64_t block = key / kKeyBlock, first = block * kKeyBlock;
    const std::int64_t keys = std::min(last - first, kKeys);
    kernels.dots(k + block * block_bytes, q, kv.head_dim, ceil_div(keys, kKeyBlock), dots);
    for (; key < first + keys; ++key) {
      sum += dots[key - first];
      if (++in_chunk == chunk) {
        scores[scored++] = sum / static_cast<float>(chunk);
        sum = 0.0F;
        in_chunk = 0;
      }
    }
  }
}

// bounds[2][d]: the least and the largest of each dimension of the chunk's keys.
void find_bounds(const KvView& kv, std::int64_t head, std::int64_t first, int keys, float* bounds) {
  const int d = kv.head_dim, pair = pairing(kv.format.type);
  float *const least = bounds, *const largest = bounds + d;
  std::fill_n(least, d, INFINITY);
  std::fill_n(largest, d, -INFINITY);
  visit_float(kv.format.type, [&](auto format) {
    const auto* k = reinterpret_cast<const typename decltype(format)::Stored*>(k_head(kv, head));
    for (std::int64_t key = first; key < first + keys; ++key) {
      for (int j = 0; j < d; ++j) {
        const float x = format.load(k[k_element(pair, d, key, j)]);
        least[j] = std::min(least[j], x);
        largest[j] = std::max(largest[j], x);
      }
    }
  });
}

// The same by the bounds of each chunk's keys; q[group, d].
void bound_range(const KvView& kv, std::int64_t head, const float* q, std::int64_t group, int chunk,
                 std::int64_t begin, std::int64_t end, float* scores) {
  const int d = kv.head_dim;
  float bounds[2 * kMaxHeadDim];
  for (std::int64_t c = begin; c < end; ++c) {
    find_bounds(kv, head, c * chunk, chunk, bounds);
    float sum = 0.0F;
    for (std::int64_t g = 0; g < group; ++g) {
      for (int j = 0; j < d; ++j) {
        const float x = q[g * d + j];
        sum += std::max(x * bounds[j], x * bounds[d + j]);
      }
    }
    scores[c] = sum;
  }
}

}  // namespace

std::int64_t chunk_scratch_bytes(int kv_heads, std::int64_t context, int chunk) {
  return round_up(kv_heads * ceil_div(context, chunk) * std::int64_t{sizeof(std::uint64_t)}, 64);
}

void score_chunks(const Workers& workers, TensorView q, const KvView& kv, int chunk,
                  std::int64_t n_chunks, TensorView scores, ChunkRule rule) {
  const int d = kv.head_dim;
  const std::int64_t group = q.shape[0] / kv.kv_heads;
  const AttentionKernels& kernels = attention_kernels(workers.isa, kv.format.type);
  const std::int64_t per_unit = std::max<std::int64_t>(1, 2048 / chunk);
  const std::int64_t units = ceil_div(n_chunks, per_unit);
  const std::int64_t bytes = kv.format.bytes(kv.kv_heads * n_chunks * chunk * d);
  parallel_for(with_threads_for(workers, bytes), kv.kv_heads * units, [&](std::int64_t i, int) {
    const std::int64_t head = i / units, begin = i % units * per_unit;
    float sum[kMaxHeadDim] = {};
    const float* from = q.as<float>() + head * group * d;
    const std::int64_t end = std::min(begin + per_unit, n_chunks);
    float* const to = scores.as<float>() + head * scores.stride[0];
    if (rule == ChunkRule::kKeyBounds) {
      bound_range(kv, head, from, group, chunk, begin, end, to);
      return;
    }
    for (std::int64_t g = 0; g < group; ++g) {
      for (int j = 0; j < d; ++j) sum[j] += from[g * d + j];
    }
    score_range(kernels, kv, head, sum, chunk, begin, end, to);
  });
}

void mean_keys(const Workers& workers, const KvView& src, int chunk, std::int64_t first,
               std::int64_t count, const KvView& dst) {
  const int d = src.head_dim;
  const Workers c = with_threads_for(workers, src.format.bytes(src.kv_heads * count * chunk * d));
  parallel_for(c, src.kv_heads * count, [&](std::int64_t i, int) {
    const std::int64_t head = i / count, row = first + i % count;
    visit_float(src.format.type, [&](auto format) {
      using F = decltype(format);
      float mean[kMaxHeadDim] = {}, key[kMaxHeadDim];
      for (std::int64_t r = row * chunk; r < (row + 1) * chunk; ++r) {
        read_k<F>(src, head, r, key);
        for (int j = 0; j < d; ++j) mean[j] += key[j];
      }
      for (int j = 0; j < d; ++j) mean[j] /= static_cast<float>(chunk);
      write_k<F>(dst, head, row, mean);
    });
  });
}

void top_chunks(const Workers& workers, TensorView scores, TensorView ids) {
  const std::int64_t heads = scores.shape[0], chunks = scores.shape[1], n = ids.shape[1];
  const std::int64_t bytes = heads * chunks * std::int64_t{sizeof(std::uint64_t)};
  auto* all = Scratch(workers).take<std::uint64_t>(heads * chunks);
  parallel_for(with_threads_for(workers, bytes * 32), heads, [&](std::int64_t head, int) {
    const float* score = scores.as<float>() + head * scores.stride[0];
    auto* id = ids.as<std::int32_t>() + head * ids.stride[0];
    std::uint64_t* ranked = all + head * chunks;
    for (std::int64_t c = 1; c < chunks; ++c) {
      ranked[c - 1] = rank_of(score[c], c);
    }
    if (n < chunks) std::nth_element(ranked, ranked + n - 1, ranked + chunks - 1);
    std::sort(ranked, ranked + n - 1);
    id[0] = 0;
    for (std::int64_t j = 1; j < n; ++j) {
      id[j] = static_cast<std::int32_t>(ranked[j - 1] & 0xffffffffU);
    }
  });
}

}  // namespace triforce::cpu
