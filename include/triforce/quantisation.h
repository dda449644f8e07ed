// Weights and KV rows of drafts in fewer bits. The target that verifies keeps all of its own.
#pragma once
#include <array>
#include <cstdint>

namespace triforce {

// Of weights: groups of kWeightGroup that follow each other in a row, each with a scale in f16 and
// a code a weight; symmetric, rounded to nearest. Of KV rows: KvGroups (backend.h).
enum class Quantisation : std::uint8_t { kNone, kInt8, kInt4 };
constexpr auto names_of(Quantisation /*any*/) { return std::array{"own", "int8", "int4"}; }
constexpr int largest_code(Quantisation q) { return q == Quantisation::kInt4 ? 7 : 127; }
constexpr int code_bits(Quantisation q) { return q == Quantisation::kInt4 ? 4 : 8; }
// Of the output head where the layers are quantised so. With 4 bits of its weights, too, drafts of
// SmolLM2-135M were accepted .648 of the time instead of .712.
constexpr Quantisation of_head(Quantisation q) {
  return q == Quantisation::kNone ? q : Quantisation::kInt8;
}
inline constexpr std::int64_t kWeightGroup = 64;
// Bytes of codes and scales of so many weights, in whole groups.
constexpr std::int64_t quantised_bytes(std::int64_t weights, Quantisation q) {
  return weights * code_bits(q) / 8 + weights / kWeightGroup * 2;
}

// Bits of a quantised KV cache.
enum class KvBits : std::uint8_t { kInt8, kInt4 };
constexpr auto names_of(KvBits /*any*/) { return std::array{"int8", "int4"}; }
constexpr Quantisation quantisation_of(KvBits bits) {
  return bits == KvBits::kInt8 ? Quantisation::kInt8 : Quantisation::kInt4;
}
// Rows of a KV head that are quantised together. Each dimension of their keys has a scale and a
// zero, and so has each row of their values (KIVI, arXiv 2402.02750; QuantSpec, arXiv 2502.10424).
inline constexpr int kKvGroup = 64;
inline constexpr std::int64_t kKvScaleBytes = 4;  // f16 scale, f16 zero
// Bytes of the codes of a group of keys, and of one of values, whose rows have d dimensions.
constexpr std::int64_t kv_code_bytes(int d, Quantisation q) {
  return std::int64_t{kKvGroup} * d * code_bits(q) / 8;
}
// Bytes of a group of keys, and of one of values.
constexpr std::int64_t kv_group_k_bytes(int d, Quantisation q) {
  return kv_code_bytes(d, q) + d * kKvScaleBytes;
}
constexpr std::int64_t kv_group_v_bytes(int d, Quantisation q) {
  return kv_code_bytes(d, q) + kKvGroup * kKvScaleBytes;
}

}  // namespace triforce
