// How far attention may be from what it is in real numbers.
#pragma once
#include <cmath>

#include "selftest/support.h"

namespace triforce::selftest {

inline double norm_of(const float* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return std::sqrt(sum);
}

// The errors that a format of rows allows, of queries over `context` keys of up to k_norm.
class AttentionBounds {
 public:
  AttentionBounds(int head_dim, std::int64_t context, DType dtype, DType activation, double k_norm)
      : d_(head_dim),
        context_(context),
        unit_(unit_of(dtype)),
        activation_unit_(rounding_of(activation)),
        underflow_(underflow_of(activation)),
        // bf16 kernels may round queries and probabilities to bf16, for products of pairs, and
        // those of half activations to the same half.
        pair_error_(dtype == DType::kBF16 || activation != DType::kF32 ? unit_ : 0),
        k_norm_(k_norm) {}
  // Error of one score: |q| |k| bounds the sum of its products; keys and queries are rounded, keys
  // perhaps on both sides of a rounding boundary.
  double score(const float* q) const {
    const double d = d_;
    const double products = norm_of(q, d_) * k_norm_ / std::sqrt(d);
    return products * (pair_error_ + 2 * unit_ + (d + 4) * kEps + activation_unit_);
  }
  // Relative error of a probability: exp of twice that, the rounding of the difference to the
  // maximum, of exp and, in pairs, of the probability.
  double probability(const float* q) const {
    const double size = norm_of(q, d_) * k_norm_ / std::sqrt(double{1} * d_);
    return std::expm1(2 * score(q) + 12 * kEps * size) + 2 * (pair_error_ + 16 * kEps) + 64 * kEps;
  }
  // Of an output whose terms have sizes that add up to `size`.
  double output(const float* q, double size) const {
    const double sum = static_cast<double>(context_ + 64) * kEps;
    return (2 * (probability(q) + sum) + activation_unit_) * size + underflow_;
  }
  double scores_of_chunks(const float* q) const {
    return score(q) * std::sqrt(double{1} * d_) + underflow_;
  }

 private:
  int d_;
  std::int64_t context_;
  double unit_, activation_unit_, underflow_, pair_error_, k_norm_;
};

}  // namespace triforce::selftest
