// Groups of weights, and of dimensions or rows of a KV cache, as a scale and integers of 8 or 4
// bits, rounded to nearest.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>

#include "core/float16.h"
#include "triforce/quantisation.h"

namespace triforce {

// The integer next to x in [least, most], ties to even; 0 for NaN.
inline std::int8_t nearest_code(float x, float least, float most) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float kept = x > most ? most : x < least ? least : x == x ? x : 0.0F;
  return static_cast<std::int8_t>((kept + kRound) - kRound);
}

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
  for (std::size_t i = 0; i < x.size(); ++i) codes[i] = nearest_code(x[i] / scale, -most, most);
  return bits;
}

// How the codes of a group of KV rows are read: code * scale + zero, f16 bits both.
struct CodeScale {
  std::uint16_t scale = 0, zero = 0;
  float value(int code) const {  // the product is exact
    return static_cast<float>(code) * f16_to_f32(scale) + f16_to_f32(zero);
  }
};

// The least and the largest of what is quantised together; NaN if one is.
struct CodeRange {
  float least, largest;
  void see(float x) {
    least = x < least || std::isnan(x) ? x : least;
    largest = x > largest ? x : largest;
  }
};
constexpr float lowest_code(Quantisation by) {
  return -static_cast<float>(1 << (code_bits(by) - 1));
}
// The least x has the lowest code, -2^(bits - 1), and the largest the highest one, but for
// rounding. One that is not finite, or a range beyond f16, makes scale or zero no finite one, and
// so what the group is multiplied with.
inline CodeScale code_scale(const CodeRange& r, Quantisation by) {
  const float lowest = lowest_code(by);
  CodeScale s;
  s.scale = f32_to_f16((r.largest - r.least) / (-2 * lowest - 1));
  s.zero = f32_to_f16(r.least - lowest * f16_to_f32(s.scale));
  return s;
}
// The code whose value is near x; scale and zero are those of a CodeScale.
inline std::int8_t code_of(float x, float scale, float zero, Quantisation by) {
  return nearest_code((x - zero) / scale, lowest_code(by), -lowest_code(by) - 1);
}

// Sets code(i) for x(i), of i below n >= 1.
template <class X, class Code>
CodeScale quantise_range(int n, Quantisation by, const X& x, const Code& code) {
  CodeRange range{x(0), x(0)};
  for (int i = 1; i < n; ++i) range.see(x(i));
  const CodeScale s = code_scale(range, by);
  const float scale = f16_to_f32(s.scale), zero = f16_to_f32(s.zero);
  for (int i = 0; i < n; ++i) code(i, code_of(x(i), scale, zero, by));
  return s;
}

}  // namespace triforce
