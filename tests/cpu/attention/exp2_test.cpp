#include "cpu/attention_exp2.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace triforce::cpu {
namespace {

TEST(Exp2, ErrorIsBelowTheStatedBound) {
  double worst = 0;
  for (double x = 0; x >= -126; x -= 1.0 / 1024 + 1e-7) {
    const auto f = static_cast<float>(x);
    const double expected = std::exp2(static_cast<double>(f));
    worst = std::max(worst, std::abs(static_cast<double>(exp2_scalar(f)) / expected - 1));
  }
  EXPECT_LE(worst, 2.5e-7);
}

TEST(Exp2, ExactWhereInvarianceNeedsIt) {
  EXPECT_EQ(exp2_scalar(0.0F), 1.0F);
  for (int n = 1; n <= 126; ++n)
    EXPECT_EQ(exp2_scalar(-static_cast<float>(n)), std::ldexp(1.0F, -n));
  EXPECT_EQ(exp2_scalar(-std::numeric_limits<float>::infinity()), 0.0F);
  EXPECT_EQ(exp2_scalar(-1e30F), 0.0F);
  EXPECT_TRUE(std::isnan(exp2_scalar(std::nanf(""))));
}

}  // namespace
}  // namespace triforce::cpu
