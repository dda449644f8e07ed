// Groups of weights as a scale and integers of 8 or 4 bits, symmetric and rounded to nearest.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>

#include "core/float16.h"
#include "triforce/quantisation.h"

namespace triforce {

// Sets codes[i], in [-n, n] for the largest code n, so that codes[i] * scale is near x[i]. Returns
// the scale: the largest magnitude / n, as f16 bits. A value that is not finite, or a scale beyond
// f16, makes it no finite one, and so what the group is multiplied with. Both spans are as long.
inline std::uint16_t quantise_group(std::span<const float> x, Quantisation by,
                                    std::span<std::int8_t> codes) {
  const auto most = static_cast<float>(largest_code(by));
  float largest = 0;
  for (const float v : x) {
    const float size = std::abs(v);
    if (size > largest || std::isnan(size)) largest = size;
  }
  const std::uint16_t bits = f32_to_f16(largest / most);
  const float scale = f16_to_f32(bits);
  for (std::size_t i = 0; i < x.size(); ++i) {
    constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
    const float at = x[i] / scale;         // NaN: 0 / 0, or not finite
    const float kept = at > most ? most : at < -most ? -most : at == at ? at : 0.0F;
    codes[i] = static_cast<std::int8_t>((kept + kRound) - kRound);
  }
  return bits;
}

}  // namespace triforce
