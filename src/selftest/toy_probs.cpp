// Tests: tests/selftest/lossless_test.cpp
#include "selftest/toy_probs.h"

#include <algorithm>
#include <cmath>

#include "triforce/random.h"

namespace triforce {

void toy_probs(int level, Token before, Token last, std::span<float> probs) {
  const auto vocab = static_cast<std::int64_t>(probs.size());
  constexpr int kUnits = 64;
  std::vector<double> weight(probs.size());
  double total = 0;
  for (std::int64_t i = 0; i < vocab; ++i) {
    double w = 0;
    for (int l = 0; l <= level; ++l) {
      const DrawKey key{2404, static_cast<std::uint32_t>(l), 0, static_cast<std::uint32_t>(i)};
      w += (l == 0 ? 2.5 : 1.5) *
           philox_uniform(key, Purpose::kWeights, static_cast<std::uint32_t>(before * 31 + last));
    }
    total += weight[static_cast<std::size_t>(i)] = std::exp(w);
  }
  int left = kUnits;
  for (std::int64_t i = 0; i < vocab; ++i) {
    const int others = static_cast<int>(vocab - 1 - i);
    const int share = static_cast<int>(weight[static_cast<std::size_t>(i)] / total * kUnits);
    const int units = others == 0 ? left : std::clamp(share, 1, left - others);
    probs[static_cast<std::size_t>(i)] = static_cast<float>(units) / kUnits;
    left -= units;
  }
}

std::vector<double> toy_joint_probs(int count, std::int64_t vocab, const ToyDistribution& target) {
  std::vector<double> joint = {1.0};
  std::vector<std::array<Token, 2>> ends = {kToyPrompt};
  std::vector<float> probs(static_cast<std::size_t>(vocab));
  for (int n = 0; n < count; ++n) {
    std::vector<double> longer;
    std::vector<std::array<Token, 2>> longer_ends;
    for (std::size_t i = 0; i < joint.size(); ++i) {
      target(ends[i][0], ends[i][1], probs);
      for (std::int64_t t = 0; t < vocab; ++t) {
        longer.push_back(joint[i] * double{probs[static_cast<std::size_t>(t)]});
        longer_ends.push_back({ends[i][1], static_cast<Token>(t)});
      }
    }
    joint = std::move(longer);
    ends = std::move(longer_ends);
  }
  return joint;
}

}  // namespace triforce
