// One type per stored floating-point format, so that loops over elements are written once.
#pragma once
#include <cstdint>

#include "core/float16.h"
#include "triforce/tensor.h"

namespace triforce::cpu {

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

// Calls f with F32{}, F16{} or Bf16{}; anything else is an internal error.
template <class F>
void visit_float(DType type, const F& f) {
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

}  // namespace triforce::cpu
