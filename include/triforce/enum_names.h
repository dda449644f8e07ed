// The names of an enumeration, said once and beside it, in the order of its values from 0 on:
//
//   enum class Side : std::uint8_t { kLeft, kRight };
//   constexpr auto names_of(Side /*any*/) { return std::array{"left", "right"}; }
//
// to_string(), and what results write, read and describe (core/fields.h), follow from it.
#pragma once
#include <array>
#include <cstddef>
#include <type_traits>

namespace triforce {

template <class E>
concept NamedEnum = std::is_enum_v<E> && requires(E x) {
  names_of(x);
};

// "?" for a value without a name, such as a closing kCount.
template <NamedEnum E>
constexpr const char* to_string(E value) {
  constexpr auto kNames = names_of(E{});
  const auto i = static_cast<std::size_t>(value);
  return i < kNames.size() ? kNames[i] : "?";
}

}  // namespace triforce
