// The order of logits, and their weights in whole numbers.
#pragma once
#include "kernels/platform.cuh"

namespace triforce::kernels {

using Word = std::uint64_t;  // whole granules

constexpr std::uint64_t kEverything = ~std::uint64_t{0};  // above every rank

// Rising ranks are falling logits, then rising ids; -0 counts as 0. Of finite logits.
TF_DEVICE std::uint64_t rank_of(float logit, int id) {
  const std::uint32_t bits = __float_as_uint(logit + 0.0F);
  const std::uint32_t rising = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return (std::uint64_t{~rising} << 32) | static_cast<std::uint32_t>(id);
}

// All ids of a rank of `rank` at most; whether one is among them takes no rank.
class Leading {
 public:
  TF_DEVICE explicit Leading(std::uint64_t rank)
      : logit_(logit_of(rank)), id_(static_cast<std::uint32_t>(rank)) {}
  TF_DEVICE bool has(int id, float logit) const {
    const bool equal = (logit == logit_) & (static_cast<std::uint32_t>(id) <= id_);
    return (logit > logit_) | equal;  // no branches
  }

 private:
  // Infinite past the ranks of finite logits, where no id is.
  TF_DEVICE static float logit_of(std::uint64_t rank) {
    const auto rising = ~static_cast<std::uint32_t>(rank >> 32);
    const bool positive = (rising & 0x80000000U) != 0;
    const std::uint32_t bits = positive ? rising ^ 0x80000000U : ~rising;
    if ((bits & 0x7f800000U) == 0x7f800000U) return positive ? INFINITY : -INFINITY;
    return __uint_as_float(bits);
  }

  float logit_;
  std::uint32_t id_;
};

// w 2^shift rounded to the nearest whole number, to even from the middle; w in [0, 1], shift < 127.
// No conversions: f64 is slow on some cards.
TF_DEVICE Word whole(float w, int shift) {
  constexpr float kOnes = 0x1p23F;  // from here to its double, floats are the whole numbers
  const float scaled = w * __uint_as_float(static_cast<unsigned>(127 + shift) << 23);  // exact
  if (scaled < kOnes) return __float_as_uint(scaled + kOnes) - __float_as_uint(kOnes);
  const std::uint32_t bits = __float_as_uint(scaled);
  return Word{(bits & 0x7fffffU) | 0x800000U} << ((bits >> 23) - 150);
}

}  // namespace triforce::kernels
