// The yield of a round in closed form.
#pragma once
#include <cmath>

namespace triforce {

// Tokens that a round yields on average in which g are proposed and each is accepted with
// probability a: 1 + a + ... + a^g.
inline double tokens_per_round(double a, int g) {
  return a >= 1.0 ? g + 1.0 : (1.0 - std::pow(a, g + 1)) / (1.0 - a);
}

}  // namespace triforce
