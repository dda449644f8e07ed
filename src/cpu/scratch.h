// Hands out aligned pieces of Context::scratch for the duration of one op.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/context.h"

namespace triforce::cpu {

constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

class Scratch {
 public:
  explicit Scratch(const Context& context) : rest_(context.scratch) {}

  // Uninitialised, 64-byte aligned. TF_CHECKs that reserve() provided enough.
  template <class T>
  T* take(std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(round_up(count * std::int64_t{sizeof(T)}, 64));
    TF_CHECK(bytes <= rest_.size(), "scratch: {} bytes needed, {} left; reserve() a larger shape",
             bytes, rest_.size());
    T* p = reinterpret_cast<T*>(rest_.data());
    rest_ = rest_.subspan(bytes);
    return p;
  }

 private:
  std::span<std::byte> rest_;
};

}  // namespace triforce::cpu
