#include <algorithm>
#include <cmath>

#include "app/measure_parts.h"

namespace triforce {
namespace {

// The steps and acceptances of a method in the terms of predict_ms_per_token.
struct PredictInput {
  const StepCurve* draft = nullptr;  // null: no level below the inner verification
  const StepCurve* inner = nullptr;  // the inner verification, or the single level's proposer
  const StepCurve* full = nullptr;
  double inner_alpha = 0, outer_alpha = 0;
};

std::optional<PredictInput> predict_input(Method method, const StepCurves& steps,
                                          const std::vector<LevelCounters>& levels) {
  if (levels.empty() || steps.full.points.empty()) return std::nullopt;
  PredictInput in;
  in.full = &steps.full;
  in.outer_alpha = levels.back().alpha();
  switch (method) {
    case Method::kTriForce:
      in.draft = &steps.draft;
      in.inner = &steps.retrieval;
      in.inner_alpha = levels.front().alpha();
      break;
    case Method::kRetrieval:
      in.inner = &steps.retrieval;
      break;
    case Method::kDraft:
      in.inner = &steps.draft;
      break;
    case Method::kStreaming:
      in.inner = &steps.streaming;
      break;
    case Method::kAutoregressive:
      return std::nullopt;
  }
  const bool measured =
      !in.inner->points.empty() && (in.draft == nullptr || !in.draft->points.empty());
  if (!measured || !std::isfinite(in.inner_alpha) || !std::isfinite(in.outer_alpha)) {
    return std::nullopt;
  }
  return in;
}

double predict(const PredictInput& in, int gamma, int inner_gamma) {
  StepTimes t;
  const bool two_levels = in.draft != nullptr;
  t.draft_ms = two_levels ? in.draft->at(1) : 0;
  t.retrieval_ms = in.inner->at(two_levels ? inner_gamma + 1 : 1);
  t.verify_ms = in.full->at(gamma + 1);
  // With inner acceptance 0, E1 is 1: one proposer pass for each of the gamma tokens.
  return predict_ms_per_token(t, in.inner_alpha, in.outer_alpha, inner_gamma, gamma);
}

}  // namespace

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

std::optional<double> predicted_ms_per_token(Method method, const StepCurves& steps,
                                             const std::vector<LevelCounters>& levels, int gamma,
                                             int inner_gamma) {
  const auto in = predict_input(method, steps, levels);
  if (!in) return std::nullopt;
  return predict(*in, gamma, inner_gamma);
}

std::optional<Gammas> choose_gammas(Method method, const StepCurves& steps,
                                    const std::vector<LevelCounters>& levels, const Gammas& most,
                                    const Gammas& given, const GammaChoice& choose) {
  const auto in = predict_input(method, steps, levels);
  if (!in) return std::nullopt;
  const bool choose_inner = choose.inner_gamma && in->draft != nullptr;
  Gammas best = given;
  double least = INFINITY;
  for (int k = choose_inner ? 1 : given.inner_gamma;
       k <= (choose_inner ? most.inner_gamma : given.inner_gamma); ++k) {
    for (int g = choose.gamma ? 1 : given.gamma; g <= (choose.gamma ? most.gamma : given.gamma);
         ++g) {
      const double ms = predict(*in, g, k);
      if (ms < least) {
        least = ms;
        best = {g, k};
      }
    }
  }
  return best;
}

}  // namespace triforce
