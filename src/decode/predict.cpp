#include <cmath>

#include "triforce/decode.h"

namespace triforce {
namespace {

// Mean tokens of a round that proposes g at acceptance a: (1 - a^(g+1)) / (1 - a).
double tokens_per_round(double a, int g) {
  return a >= 1.0 ? g + 1.0 : (1.0 - std::pow(a, g + 1)) / (1.0 - a);
}

}  // namespace

double predict_ms_per_token(const StepTimes& t, double inner_alpha, double outer_alpha,
                            int inner_gamma, int gamma) {
  const double inner_rounds = gamma / tokens_per_round(inner_alpha, inner_gamma);
  return (inner_rounds * (inner_gamma * t.draft_ms + t.retrieval_ms) + t.verify_ms) /
         tokens_per_round(outer_alpha, gamma);
}

Gammas best_gammas(const StepTimes& t, double inner_alpha, double outer_alpha) {
  Gammas best;
  double least = INFINITY;
  for (int k = 1; k <= kMaxGamma; ++k) {
    for (int g = 1; g <= kMaxGamma; ++g) {
      const double ms = predict_ms_per_token(t, inner_alpha, outer_alpha, k, g);
      if (ms < least) {
        least = ms;
        best = {g, k};
      }
    }
  }
  return best;
}

}  // namespace triforce
