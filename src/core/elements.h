// Each stored floating-point format has a type, so that loops over elements are written once.
#pragma once
#include <cstdint>
#include <cstring>

#include "core/float16.h"
#include "triforce/tensor.h"

namespace triforce {

struct F32 {
  using Stored = float;
  static constexpr DType kType = DType::kF32;
  static float load(float x) { return x; }
  static float store(float x) { return x; }
};
struct F16 {
  using Stored = std::uint16_t;
  static constexpr DType kType = DType::kF16;
  static float load(std::uint16_t x) { return f16_to_f32(x); }
  static std::uint16_t store(float x) { return f32_to_f16(x); }
};
struct Bf16 {
  using Stored = std::uint16_t;
  static constexpr DType kType = DType::kBF16;
  static float load(std::uint16_t x) { return bf16_to_f32(x); }
  static std::uint16_t store(float x) { return f32_to_bf16(x); }
};

// Returns what f gives for F32{}, F16{} or Bf16{}; any other type is an internal error.
template <class F>
auto visit_float(DType type, const F& f) {
  switch (type) {
    case DType::kF32:
      return f(F32{});
    case DType::kF16:
      return f(F16{});
    case DType::kBF16:
      return f(Bf16{});
    case DType::kI32:
      break;
  }
  TF_CHECK(false, "expected a floating-point type, found {}", to_string(type));
}

// dst[n] = src[n], converted to nearest even; f32, f16 and bf16 to each other, i32 to i32 only
// (TF_CHECK). The arrays must not overlap.
inline void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t n) {
  if (dst_type == src_type) {
    if (n > 0) std::memcpy(dst, src, static_cast<std::size_t>(n * size_of(src_type)));
    return;
  }
  visit_float(dst_type, [&](auto to) {
    visit_float(src_type, [&](auto from) {
      auto* d = static_cast<typename decltype(to)::Stored*>(dst);
      const auto* s = static_cast<const typename decltype(from)::Stored*>(src);
      for (std::int64_t i = 0; i < n; ++i) d[i] = to.store(from.load(s[i]));
    });
  });
}

}  // namespace triforce
