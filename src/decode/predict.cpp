#include "triforce/predict.h"

#include <algorithm>
#include <cmath>

#include "triforce/error.h"

namespace triforce {
namespace {

bool predictable(const MethodSpec& method, const StepCurves& steps,
                 std::span<const double> alphas) {
  if (alphas.size() != static_cast<std::size_t>(method.levels())) return false;
  return std::all_of(method.passes().begin(), method.passes().end(),
                     [&](Pass p) { return !steps[p].points.empty(); }) &&
         std::all_of(alphas.begin(), alphas.end(), [](double a) { return std::isfinite(a); });
}

double predict(const MethodSpec& method, const StepCurves& steps, std::span<const double> alphas,
               const Gammas& gammas) {
  double ms_per_token = steps[method.proposer()].at(1);
  for (int l = 0; l < method.levels(); ++l) {
    const int step = method.step(l, gammas);
    const double round = step * ms_per_token + steps[method.verifier(l)].at(step + 1);
    ms_per_token = round / tokens_per_round(alphas[static_cast<std::size_t>(l)], step);
  }
  return ms_per_token;
}

}  // namespace

double tokens_per_round(double a, int g) {
  return a >= 1.0 ? g + 1.0 : (1.0 - std::pow(a, g + 1)) / (1.0 - a);
}

double StepCurve::at(int rows) const {
  TF_CHECK(!points.empty());
  const auto above = std::find_if(points.begin(), points.end(),
                                  [&](const auto& point) { return point.first >= rows; });
  if (above == points.end()) return points.back().second;
  if (above == points.begin() || above->first == rows) return above->second;
  const auto below = above - 1;
  const double weight =
      static_cast<double>(rows - below->first) / static_cast<double>(above->first - below->first);
  return below->second + weight * (above->second - below->second);
}

std::optional<double> predicted_ms_per_token(const MethodSpec& method, const StepCurves& steps,
                                             std::span<const double> alphas, const Gammas& gammas) {
  if (!predictable(method, steps, alphas)) return std::nullopt;
  return predict(method, steps, alphas, gammas);
}

std::optional<Gammas> choose_gammas(const MethodSpec& method, const StepCurves& steps,
                                    std::span<const double> alphas, const Gammas& max,
                                    const Gammas& given, const GammaChoice& chosen) {
  if (!predictable(method, steps, alphas)) return std::nullopt;
  const bool search_inner = chosen.inner_gamma && method.levels() > 1;
  const bool search_outer = chosen.gamma && method.levels() > 0;
  Gammas best = given;
  double best_ms = INFINITY;
  for (int k = search_inner ? 1 : given.inner_gamma;
       k <= (search_inner ? max.inner_gamma : given.inner_gamma); ++k) {
    for (int g = search_outer ? 1 : given.gamma; g <= (search_outer ? max.gamma : given.gamma);
         ++g) {
      const double ms = predict(method, steps, alphas, {g, k});
      if (ms < best_ms) {
        best_ms = ms;
        best = {g, k};
      }
    }
  }
  return best;
}

}  // namespace triforce
