// Weights of drafts in fewer bits. The target that verifies keeps all of its own.
#pragma once
#include <array>
#include <cstdint>

namespace triforce {

// Groups of kWeightGroup weights that follow each other in a row, each with a scale in f16 and a
// code a weight; symmetric, rounded to nearest.
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

}  // namespace triforce
