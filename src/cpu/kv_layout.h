// Order of elements inside the K and V rows of one head, chosen so that both products of attention
// run over keys or dimensions in lanes, without horizontal sums, and a chunk of 8 tokens is a few
// plain copies (measured against token-major rows: see bench/attention_bench.cpp).
//
//   bf16      K [token / 16][dim / 2][16 tokens][2 dims]   V [token / 2][dim][2 tokens]
//   f32, f16  K [token / 16][dim][16 tokens]               V [token][dim]
#pragma once
#include <cstddef>
#include <cstdint>

#include "triforce/backend.h"

namespace triforce::cpu {

// Tokens per key block: the unit in which capacities are counted.
inline constexpr int kKeyBlock = 16;
inline constexpr int kMaxHeadDim = 256;

// Dimensions that lie side by side for one token in K, and tokens that do for one dimension in V.
constexpr int pairing(DType type) { return type == DType::kBF16 ? 2 : 1; }

// Element of K[token][dim] relative to the head's first element; d is the head dimension.
constexpr std::int64_t k_element(int pair, int d, std::int64_t token, int dim) {
  const std::int64_t block = token / kKeyBlock, lane = token % kKeyBlock;
  return (block * d + dim / pair * pair) * kKeyBlock + lane * pair + dim % pair;
}
// Element of V[token][dim] relative to the head's first element.
constexpr std::int64_t v_element(int pair, int d, std::int64_t token, int dim) {
  return token / pair * pair * d + static_cast<std::int64_t>(dim) * pair + token % pair;
}

// First byte of one kv head.
inline std::byte* k_head(const KvView& kv, std::int64_t head) {
  return static_cast<std::byte*>(kv.k) + head * kv.head_stride * size_of(kv.dtype);
}
inline std::byte* v_head(const KvView& kv, std::int64_t head) {
  return static_cast<std::byte*>(kv.v) + head * kv.head_stride * size_of(kv.dtype);
}

}  // namespace triforce::cpu
