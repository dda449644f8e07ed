// A function given by points.
#pragma once
#include <algorithm>
#include <span>
#include <utility>

#include "triforce/error.h"

namespace triforce {

// Returns the function's value at x. It is linear between `points`, of which there is at least one
// and whose places rise. It is constant beyond them.
template <class X>
double piecewise_linear(std::span<const std::pair<X, double>> points, double x) {
  TF_CHECK(!points.empty());
  const auto above =
      std::ranges::find_if(points, [x](const auto& point) { return point.first >= x; });
  if (above == points.end()) return points.back().second;
  if (above == points.begin()) return above->second;
  const auto below = above - 1;
  const double weight = (x - below->first) / (above->first - below->first);
  return below->second + weight * (above->second - below->second);
}

}  // namespace triforce
