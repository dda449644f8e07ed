// How a panel of quantised weights lies in memory, one group of 64 depths after the other:
//
//   [64] f16 scales, one a column | words of codes: [64 / (codes of a word)][64 columns] u32
//
// A word has 8 codes of 4 bits or 4 of 8 bits of one column, in two's complement. Its lower half
// has the even depths in rising order and its upper half the odd ones. So one shift of 16-bit lanes
// brings neighbours in depth to where a pair of bf16 has them.
#pragma once
#include <cstdint>

#include "cpu/linear_kernels.h"
#include "triforce/quantisation.h"

namespace triforce::cpu {

inline constexpr std::int64_t kScaleBytes = kPanel * 2;
template <int kBits>
inline constexpr std::int64_t kQuantisedStepBytes = kScaleBytes + kWeightGroup* kPanel* kBits / 8;

// The depth of code `place` of a word, from the lowest bits on.
template <int kBits>
constexpr int depth_in_word(int place) {
  constexpr int kHalf = 16 / kBits;
  return place < kHalf ? 2 * place : 2 * (place - kHalf) + 1;
}

}  // namespace triforce::cpu
