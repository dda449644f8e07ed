// Checked 64-bit arithmetic for every size that was computed from a number read from a file.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

namespace triforce {

// a + b, or nothing if it does not fit.
template <class T>
constexpr std::optional<T> checked_add(T a, T b) {
  T out{};
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// a * b, or nothing if it does not fit.
template <class T>
constexpr std::optional<T> checked_mul(T a, T b) {
  T out{};
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// The product of all factors, 1 for none. Nothing if the product of the non-zero factors does not
// fit, even where a zero would make the result 0: the verdict must not depend on their order.
template <class T>
constexpr std::optional<T> checked_product(std::span<const T> factors) {
  T product = 1;
  bool zero = false;
  for (const T factor : factors) {
    if (factor == 0) {
      zero = true;
      continue;
    }
    const std::optional<T> next = checked_mul(product, factor);
    if (!next) return std::nullopt;
    product = *next;
  }
  return zero ? T{0} : product;
}

}  // namespace triforce
