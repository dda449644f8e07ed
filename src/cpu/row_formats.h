// How rows of weights, keys and values lie in memory, over a vector type V of 16 floats: for the
// kernels of attention_tile.h, attention_codes.h, linear_tile.h and linear_quantised_tile.h.
// Included by one source per instruction level, which defines TF_ISA (the target attribute) and V
// first.
//
// A format has Element, what is stored; Query, what it is multiplied with; kPair, the neighbours in
// depth that a load takes; kLoaded, the vectors that hold one; and mad(acc, load(..),
// broadcast(..)), which adds the products of a load. A format of codes has in place of Element and
// kPair the depths of a word, kDepth, and in how many parts it is loaded, kParts.
#pragma once
#ifndef TF_ISA
#error "define TF_ISA and V before including this file"
#endif
#include <cstddef>
#include <cstdint>

#include "cpu/prefetch.h"
#include "cpu/quantised_panel.h"
#include "cpu/workers.h"

#define TF_ISA_INLINE TF_ISA inline __attribute__((always_inline))
// Loops whose sums fill the registers are not inlined. Else registers would also hold what the
// caller needs.
#define TF_ISA_ALONE TF_ISA __attribute__((noinline))

namespace triforce::cpu {
namespace {

// (x, y) turned by the angle of (cos, sin).
template <class V>
TF_ISA_INLINE void rotate_pair(typename V::Vec& x, typename V::Vec& y, typename V::Vec cos,
                               typename V::Vec sin) {
  const typename V::Vec turned = V::sub(V::mul(x, cos), V::mul(y, sin));
  y = V::add(V::mul(y, cos), V::mul(x, sin));
  x = turned;
}

// Elements of type T side by side, f32 arithmetic.
template <class V, class T>
struct PlainFormat {
  using Element = T;
  using Query = float;
  using Vec = typename V::Vec;
  static constexpr int kPair = 1;
  static constexpr int kLoaded = 1;
  TF_ISA_INLINE static Vec load(const T* p) { return V::load(p); }
  TF_ISA_INLINE static Vec broadcast(const float* p) { return V::set1(*p); }
  TF_ISA_INLINE static Vec mad(Vec acc, Vec x, Vec s) { return V::fma(x, s, acc); }
  // Stores 32 probabilities as the second product reads them; returns l plus what was stored.
  TF_ISA_INLINE static Vec pack(Vec p0, Vec p1, float* out, Vec l) {
    V::store(out, p0);
    V::store(out + kLanes, p1);
    return V::add(V::add(l, p0), p1);
  }
  TF_ISA_INLINE static void store(T* p, Vec x) { V::store(p, x); }
  TF_ISA_INLINE static void rotate(Vec& low, Vec& high, const float* cos, const float* sin) {
    rotate_pair<V>(low, high, V::load(cos), V::load(sin));
  }
};

// Codes of kBits in f32 arithmetic. A word (quantised_panel.h) has kDepth depths, in kParts parts.
template <class V, int kBits>
struct CodeFormat {
  using Query = float;
  using Vec = typename V::Vec;
  static constexpr int kParts = 32 / kBits, kDepth = 32 / kBits;
  TF_ISA_INLINE static Vec load(const std::uint32_t* p, int part) {
    return V::template codes<kBits>(p, part);
  }
  TF_ISA_INLINE static Vec broadcast(const float* x, int part) {
    return V::set1(x[depth_in_word<kBits>(part)]);
  }
  TF_ISA_INLINE static Vec mad(Vec acc, Vec w, Vec x) { return V::fma(w, x, acc); }
};

// Codes of 4 bits times 16^place, which some V has in fewer instructions. Attention multiplies x by
// 16^-place then.
template <class V>
struct PlacedCodeFormat : CodeFormat<V, 4> {
  // 16^-place of each depth in two words.
  alignas(64) static constexpr float kUnits[kLanes] = {
      0x1p0F, 0x1p-16F, 0x1p-4F, 0x1p-20F, 0x1p-8F, 0x1p-24F, 0x1p-12F, 0x1p-28F,
      0x1p0F, 0x1p-16F, 0x1p-4F, 0x1p-20F, 0x1p-8F, 0x1p-24F, 0x1p-12F, 0x1p-28F};
  TF_ISA_INLINE static typename V::Vec load(const std::uint32_t* p, int part) {
    return V::placed_codes(p, part);
  }
};
template <class V>
concept PlacesCodes = requires(const std::uint32_t* p) {
  V::placed_codes(p, 0);
};

// bf16 in pairs, f32 arithmetic.
template <class V>
struct PairFormat {
  using Element = std::uint16_t;
  using Query = float;
  using Vec = typename V::Vec;
  struct Two {
    Vec even, odd;
  };
  static constexpr int kPair = 2;
  static constexpr int kLoaded = 2;
  TF_ISA_INLINE static Two load(const std::uint16_t* p) {
    Two t;
    V::load_pairs(p, t.even, t.odd);
    return t;
  }
  TF_ISA_INLINE static Two broadcast(const float* p) { return {V::set1(p[0]), V::set1(p[1])}; }
  TF_ISA_INLINE static Vec mad(Vec acc, const Two& x, const Two& s) {
    return V::fma(x.odd, s.odd, V::fma(x.even, s.even, acc));
  }
  TF_ISA_INLINE static Vec pack(Vec p0, Vec p1, float* out, Vec l) {
    return PlainFormat<V, float>::pack(p0, p1, out, l);
  }
  TF_ISA_INLINE static void store(std::uint16_t* p, const Two& x) {
    V::store_pairs(p, x.even, x.odd);
  }
  TF_ISA_INLINE static void rotate(Two& low, Two& high, const float* cos, const float* sin) {
    rotate_pair<V>(low.even, high.even, V::load(cos), V::load(sin));
    rotate_pair<V>(low.odd, high.odd, V::load(cos + kLanes), V::load(sin + kLanes));
  }
};

// [rows, width] in format F as f32, `stride` floats from row to row; width is a multiple of kLanes.
// Asks for as many bytes behind them meanwhile.
template <class V, class F>
TF_ISA void widen(const std::byte* from, std::int64_t rows, std::int64_t width, float* out,
                  std::int64_t stride) {
  const auto* p = reinterpret_cast<const typename F::Element*>(from);
  const std::int64_t ahead = rows * width;
  for (std::int64_t r = 0; r < rows; r += F::kPair, out += F::kPair * stride) {
    for (std::int64_t c = 0; c < width; c += kLanes, p += kLanes * F::kPair) {
      const auto x = F::load(p);
      prefetch_line(p + ahead);
      if constexpr (F::kPair == 2) {
        V::store(out + c, x.even);
        V::store(out + stride + c, x.odd);
      } else {
        V::store(out + c, x);
      }
    }
  }
}

}  // namespace
}  // namespace triforce::cpu
