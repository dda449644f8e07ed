#include <algorithm>
#include <cmath>
#include <numbers>

#include "triforce/weights.h"

namespace triforce {
namespace {

// Dimension pair that turns `rotations` times within the original context, as a real number.
double correction_dim(double rotations, const ModelConfig& c) {
  const auto context = static_cast<double>(c.rope.original_max_position);
  return c.head_dim * std::log(context / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(c.rope_theta));
}

// Yarn-Llama-2-7b-128k modeling code: pairs below `low` keep their frequency, those above `high`
// are interpolated, with a linear ramp between; the bounds are clamped to the head dimension, not
// to the number of pairs, and cos and sin carry 0.1 ln(factor) + 1.
void scale_yarn(const ModelConfig& c, RopeFrequencies& f) {
  const double low = std::max(std::floor(correction_dim(c.rope.beta_fast, c)), 0.0);
  double high =
      std::min(std::ceil(correction_dim(c.rope.beta_slow, c)), static_cast<double>(c.head_dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < f.inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    f.inv_freq[i] = f.inv_freq[i] / c.rope.factor * ramp + f.inv_freq[i] * (1 - ramp);
  }
  const double by_length = c.rope.factor <= 1 ? 1.0 : 0.1 * std::log(c.rope.factor) + 1.0;
  f.attention_factor = c.rope.attention_factor.value_or(by_length);
}

// transformers modeling_rope_utils, "llama3": long waves are interpolated, short ones kept, those
// between blended.
void scale_llama3(const ModelConfig& c, RopeFrequencies& f) {
  const auto context = static_cast<double>(c.rope.original_max_position);
  const double low = c.rope.low_freq_factor;
  const double high = c.rope.high_freq_factor;
  for (double& x : f.inv_freq) {
    const double turns = context * x / (2 * std::numbers::pi);  // within the original context
    if (turns > high) continue;
    const double keep = turns < low ? 0.0 : (turns - low) / (high - low);
    x = (1 - keep) * x / c.rope.factor + keep * x;
  }
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& c) {
  TF_CHECK(c.head_dim >= 2 && c.head_dim % 2 == 0, "head dimension {}", c.head_dim);
  RopeFrequencies f;
  f.inv_freq.resize(static_cast<std::size_t>(c.head_dim / 2));
  for (std::size_t i = 0; i < f.inv_freq.size(); ++i) {
    f.inv_freq[i] = std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / c.head_dim);
  }
  switch (c.rope.kind) {
    case RopeScaling::Kind::kNone:
      break;
    case RopeScaling::Kind::kLinear:
      for (double& x : f.inv_freq) x /= c.rope.factor;
      break;
    case RopeScaling::Kind::kYarn:
      scale_yarn(c, f);
      break;
    case RopeScaling::Kind::kLlama3:
      scale_llama3(c, f);
      break;
  }
  return f;
}

RopeTable make_rope_table(Backend& backend, const ModelConfig& config, std::int64_t positions,
                          MemTag tag) {
  TF_CHECK(positions > 0, "RoPE table of {} positions", positions);
  const RopeFrequencies f = rope_frequencies(config);
  const auto half = static_cast<std::int64_t>(f.inv_freq.size());
  RopeTable table;
  table.cos = Tensor(backend.allocator(), DType::kF32, {positions, half}, backend.place(), tag);
  table.sin = Tensor(backend.allocator(), DType::kF32, {positions, half}, backend.place(), tag);
  constexpr std::int64_t kBlock = 1024;  // positions computed and uploaded together
  std::vector<float> cos;
  std::vector<float> sin;
  for (std::int64_t begin = 0; begin < positions; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, positions - begin);
    cos.clear();
    sin.clear();
    for (std::int64_t p = begin; p < begin + n; ++p) {
      for (const double inv_freq : f.inv_freq) {
        const double angle = static_cast<double>(p) * inv_freq;
        cos.push_back(static_cast<float>(std::cos(angle) * f.attention_factor));
        sin.push_back(static_cast<float>(std::sin(angle) * f.attention_factor));
      }
    }
    backend.upload(table.cos.view().rows(begin, n), make_view(cos.data(), DType::kF32, {n, half}));
    backend.upload(table.sin.view().rows(begin, n), make_view(sin.data(), DType::kF32, {n, half}));
  }
  return table;
}

}  // namespace triforce
