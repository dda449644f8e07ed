// Quantiles and tails of distributions, by Boost.Math: right to 1e-12 of their value where nothing
// else is said.
#pragma once
#include <cstdint>

namespace triforce {

// The z with P(|Z| <= z) = `within` of the normal distribution. `within` in (0, 1).
double normal_z(double within);
inline constexpr double kNormal95 = 1.959963984540054;  // normal_z(0.95)

// The t with P(|T| <= t) = `within` of Student's distribution with `freedom` degrees of freedom, at
// least 1. `within` in (0, 1).
double student_t(std::int64_t freedom, double within);
inline double student_t95(std::int64_t freedom) { return student_t(freedom, 0.95); }

// P(X >= statistic) of the chi-square distribution with `degrees` of freedom, at least 1, of a
// statistic of at least 0. Below the smallest double it is 0.
double chi_square_tail(double statistic, int degrees);

}  // namespace triforce
