// The two 16-bit element types as template parameters, and their conversions.
#pragma once
#include <type_traits>

#include "kernels/platform.cuh"
#include "triforce/backend.h"

namespace triforce::kernels {

TF_DEVICE float to_float(float x) { return x; }
TF_DEVICE float to_float(__half x) { return __half2float(x); }
TF_DEVICE float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// What stands for quantised weights and rows among the types that kernels are built for: codes of
// kBits, which are multiplied as T. Others are T themselves.
template <class T, int kBits>
struct Codes {};

template <class Rows>
struct RowsOf {
  using Element = Rows;
  static constexpr int kBits = 0;  // of its codes
};
template <class T, int kCodeBits>
struct RowsOf<Codes<T, kCodeBits>> {
  using Element = T;
  static constexpr int kBits = kCodeBits;
};

// Rounds to nearest even.
template <class T>
TF_DEVICE T from_float(float x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else {
    return x;
  }
}

// body(T{}) with the element type of a run: f16 or bf16. Throws kInternal for another.
template <class Body>
void with_half(DType type, const Body& body) {
  TF_CHECK(type == DType::kF16 || type == DType::kBF16, "kernel for {}", to_string(type));
  if (type == DType::kF16) {
    body(__half{});
  } else {
    body(__nv_bfloat16{});
  }
}
// The same for f32, f16 and bf16.
template <class Body>
void with_float(DType type, const Body& body) {
  if (type == DType::kF32) {
    body(float{});
  } else {
    with_half(type, body);
  }
}

// body(T{}, std::integral_constant<int, d>{}) with element type and head dimension of a cache: the
// dimensions that attention is built for are 64 and 128.
template <class Body>
void with_rows_of(const KvView& kv, const Body& body) {
  with_half(kv.format.type, [&](auto t) {
    if (kv.head_dim == 64) {
      body(t, std::integral_constant<int, 64>{});
    } else {
      body(t, std::integral_constant<int, 128>{});
    }
  });
}

// The same with Codes<T, kBits>{} for T{} where the view has groups.
template <class Body>
void with_rows_and_groups_of(const KvView& kv, const Body& body) {
  with_rows_of(kv, [&](auto t, auto dim) {
    using T = decltype(t);
    if (!kv.older) {
      body(t, dim);
    } else if (kv.older.quantisation == Quantisation::kInt8) {
      body(Codes<T, 8>{}, dim);
    } else {
      body(Codes<T, 4>{}, dim);
    }
  });
}

}  // namespace triforce::kernels
