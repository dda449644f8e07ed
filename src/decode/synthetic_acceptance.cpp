#include "triforce/synthetic_acceptance.h"

#include <algorithm>
#include <cmath>

#include "triforce/error.h"
#include "triforce/metrics.h"
#include "triforce/pass.h"

namespace triforce {

std::vector<double> SyntheticAcceptance::of(const MethodSpec& method, int level, int asked) const {
  TF_CHECK(!outer.empty());
  const bool is_inner = form == Form::kRate
                            ? level == 0 && spec_of(method.proposer()).net != Net::kTarget
                            : !method.is_outermost(level);
  TF_CHECK(!is_inner || inner, "level {} of method {}", level, method.name);
  if (is_inner) return {*inner};
  if (form == Form::kLength) return {alpha_from_tokens_per_round(outer.front(), asked)};
  std::vector<double> rates = outer;
  if (form != Form::kMarginal) return rates;
  double before = 1;
  for (double& rate : rates) {
    const double marginal = rate;
    rate = before > 0 ? std::min(marginal / before, 1.0) : 0.0;
    before = marginal;
  }
  return rates;
}

double SyntheticAcceptance::rate_of(const MethodSpec& method, int level, int asked) const {
  const std::vector<double> rates = of(method, level, asked);
  if (rates.size() == 1) return rates.front();
  double tokens = 1, kept = 1;
  for (int i = 0; i < asked; ++i) {
    kept *= rates[std::min(static_cast<std::size_t>(i), rates.size() - 1)];
    tokens += kept;
  }
  return alpha_from_tokens_per_round(tokens, asked);
}

}  // namespace triforce
