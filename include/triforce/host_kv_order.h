// The order of elements inside the K and V rows of one KV head where the processor computes with
// them: those of the CPU backend, and of a device's KV heads whose attention the host computes.
//
//   bf16      K [token / 16][dim / 2][16 tokens][2 dims]   V [token / 2][dim][2 tokens]
//   f32, f16  K [token / 16][dim][16 tokens]               V [token][dim]
//
// Both products of attention then run over keys or dimensions in lanes, without horizontal sums,
// and a chunk of 8 tokens is a few plain copies (measured against token-major rows: see
// bench/attention_bench.cpp).
#pragma once
#include <cstdint>

#include "triforce/tensor.h"

namespace triforce {

// Tokens per key block: capacities are multiples of it.
inline constexpr int kHostKeyBlock = 16;

// Dimensions that lie side by side for one token in K, and tokens that do for one dimension in V.
constexpr int pairing(DType type) { return type == DType::kBF16 ? 2 : 1; }

// Element of K[token][dim] relative to the head's first element; d is the head dimension.
constexpr std::int64_t k_element(int pair, int d, std::int64_t token, int dim) {
  const std::int64_t block = token / kHostKeyBlock, lane = token % kHostKeyBlock;
  return (block * d + dim / pair * pair) * kHostKeyBlock + lane * pair + dim % pair;
}
// Element of V[token][dim] relative to the head's first element.
constexpr std::int64_t v_element(int pair, int d, std::int64_t token, int dim) {
  return token / pair * pair * d + static_cast<std::int64_t>(dim) * pair + token % pair;
}

// The token and dimension of an element of K or V: the inverse of the above.
struct HostKvPlace {
  std::int64_t token = 0;
  int dim = 0;
};
constexpr HostKvPlace k_place(int pair, int d, std::int64_t element) {
  const std::int64_t block = element / (kHostKeyBlock * d);
  const auto i = static_cast<int>(element % (kHostKeyBlock * d)), line = kHostKeyBlock * pair;
  return {block * kHostKeyBlock + i % line / pair, i / line * pair + i % pair};
}
constexpr HostKvPlace v_place(int pair, int d, std::int64_t element) {
  const auto i = static_cast<int>(element % (pair * d));
  return {element / (pair * d) * pair + i % pair, i / pair};
}

}  // namespace triforce
