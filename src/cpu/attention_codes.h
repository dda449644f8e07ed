// Attention over a group of codes (kv_groups.h), without its values in memory. A depth's scale goes
// to what its codes are multiplied with, and its zero into a sum beside:
//
//   sum of x[i] (scale[i] code[i] + zero[i]) = sum of (x[i] scale[i]) code[i] + sum of x[i] zero[i]
//
// V, F and TF_ISA as in attention_tile.h; C is a format of codes (row_formats.h) with F's queries,
// and Fold makes these factors and sums.
#ifndef TF_ISA
#error "define TF_ISA and V before including this file"
#endif
#include <type_traits>

#include "cpu/attention_tile.h"

namespace triforce::cpu {
namespace {

// scaled[r, depths] = x[r] scale, in the units of C, and sums[r] the sum of x[r] zero.
template <class V, class C>
struct FloatFold {
  TF_ISA_INLINE static void fold(const CodeTile& a, const float* x, std::int64_t stride, int count,
                                 float* scaled, std::int64_t scaled_stride, float* sums) {
    for (int r = 0; r < count; ++r, x += stride, scaled += scaled_stride) {
      typename V::Vec sum = V::set1(0.0F);
      for (int i = 0; i < a.depths; i += kLanes) {
        const auto from = V::load(x + i);
        auto scale = V::load(a.scales + i);
        if constexpr (requires { C::kUnits; }) scale = V::mul(scale, V::load(C::kUnits));
        V::store(scaled + i, V::mul(from, scale));
        sum = V::fma(from, V::load(a.zeros + i), sum);
      }
      sums[r] = V::sum_lanes(sum);
    }
  }
};

template <class V, class F, class C, class Fold = FloatFold<V, C>>
struct CodeAttention {
  using Vec = typename V::Vec;
  using Query = typename F::Query;
  using Tile = AttentionTile<V, F>;
  static constexpr int kVecs = kTileKeys / kLanes;

  // sum[r][b] += x[r, depth] . codes of blocks [first, first + kBlocks)
  template <int R, int kBlocks>
  TF_ISA_INLINE static void multiply(const CodeTile& a, int first, const Query* x,
                                     Vec (&sum)[R][kBlocks]) {
    const std::uint32_t* words = a.words + first * a.block_words;
    for (int depth = 0; depth < a.depths; depth += C::kDepth, words += a.row_words) {
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) {
        prefetch_line(reinterpret_cast<const std::byte*>(words + b * a.block_words) + a.bytes);
      }
#pragma GCC unroll 8
      for (int part = 0; part < C::kParts; ++part) {
#pragma GCC unroll 4
        for (int b = 0; b < kBlocks; ++b) {
          const auto codes = C::load(words + b * a.block_words, part);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) {
            sum[r][b] = C::mad(sum[r][b], codes, C::broadcast(x + r * kMaxHeadDim + depth, part));
          }
        }
      }
    }
  }

  // s[r, 16 kBlocks keys from block `first` on] = x[r] . codes + zeros[r]
  template <int R, int kBlocks>
  TF_ISA_ALONE static void scores(const CodeTile& k, int first, const Query* x, const float* zeros,
                                  float* s) {
    Vec sum[R][kBlocks];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) sum[r][b] = V::set1(0.0F);
    }
    multiply(k, first, x, sum);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) {
        V::store(s + r * kTileKeys + (first + b) * kLanes, V::add(sum[r][b], V::set1(zeros[r])));
      }
    }
  }

  // o[r, 16 kBlocks dimensions] = factor[r] o + x[r] codes + zeros[r]
  template <int R, int kBlocks>
  TF_ISA_ALONE static void values(const CodeTile& v, int first, const Query* x, const float* zeros,
                                  const float* factor, float* o, int d) {
    Vec sum[R][kBlocks];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vec f = V::set1(factor[r]), zero = V::set1(zeros[r]);
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) {
        sum[r][b] = V::fma(V::load(o + r * d + (first + b) * kLanes), f, zero);
      }
    }
    multiply(v, first, x, sum);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) V::store(o + r * d + (first + b) * kLanes, sum[r][b]);
    }
  }

  template <int R>
  TF_ISA static void rows(const TileArgs& a, const CodeTile& k, const CodeTile& v, int tile,
                          int row) {
    alignas(64) float s[R * kTileKeys];
    alignas(64) Query p[R * kTileKeys];
    alignas(64) Query x[R * kMaxHeadDim];
    alignas(64) float factor[kLanes];
    float zeros[R];
    constexpr int kBlocks = V::blocks(R);
    const auto* q = reinterpret_cast<const Query*>(a.q) + static_cast<std::int64_t>(row) * a.d;
    float* const o = a.o + static_cast<std::int64_t>(row) * a.d;
    Fold::fold(k, q, a.d, R, x, kMaxHeadDim, zeros);
    for (int b = 0; b < kVecs; b += kBlocks) scores<R, kBlocks>(k, b, x, zeros, s);
    Tile::softmax(a, tile, row, R, s, p, factor);
    Fold::fold(v, p, kTileKeys, R, x, kMaxHeadDim, zeros);
    int b = 0;
    for (; b + kBlocks <= v.blocks; b += kBlocks) {
      values<R, kBlocks>(v, b, x, zeros, factor, o, a.d);
    }
    for (; b < v.blocks; ++b) values<R, 1>(v, b, x, zeros, factor, o, a.d);
  }

  template <int R>
  TF_ISA static void rows_of(const TileArgs& a, const CodeTile& k, const CodeTile& v, int tile,
                             int row, int count) {
    if constexpr (R > 1) {
      if (count < R) return rows_of<R - 1>(a, k, v, tile, row, count);
    }
    rows<R>(a, k, v, tile, row);
  }

  TF_ISA static void run(const TileArgs& a, const CodeTile& first_k, const CodeTile& first_v) {
    CodeTile k = first_k, v = first_v;
    const int passes = (a.rows + V::kMaxRows - 1) / V::kMaxRows;  // as even as possible
    for (int tile = 0; tile < a.tiles; ++tile, k.advance(), v.advance()) {
      for (int pass = 0, row = 0; pass < passes; ++pass) {
        const int count = (a.rows - row + passes - pass - 1) / (passes - pass);
        rows_of<V::kMaxRows>(a, k, v, tile, row, count);
        row += count;
      }
    }
  }
};

// The three row formats, and groups of codes, in f32 arithmetic.
template <class V>
const AttentionKernels& float_kernels(DType type) {
  using Half = PlainFormat<V, std::uint16_t>;
  using Single = PlainFormat<V, float>;
  using Pair = PairFormat<V>;
  constexpr auto int8 = CodeAttention<V, Single, CodeFormat<V, 8>>::run;
  using Codes = std::conditional_t<PlacesCodes<V>, PlacedCodeFormat<V>, CodeFormat<V, 4>>;
  constexpr auto int4 = CodeAttention<V, Single, Codes>::run;
  constexpr auto table = []<class F>(F, auto widen) {
    return AttentionKernels{.tiles = AttentionTile<V, F>::run,
                            .dots = KeyKernels<V, F>::dots,
                            .collapse = KeyKernels<V, F>::collapse,
                            .rotate = KeyKernels<V, F>::rotate,
                            .widen = widen,
                            .int8_groups = int8,
                            .int4_groups = int4,
                            // Widening takes 2% of the time then instead of 6% (AMD Zen 4).
                            .prompt_rows = widen == nullptr ? kLeastPromptRows : kMostPromptRows};
  };
  static constexpr AttentionKernels kTables[] = {
      table(Single{}, nullptr), table(Half{}, kWiden<V, Half>), table(Pair{}, kWiden<V, Pair>)};
  return kTables[type == DType::kF32 ? 0 : type == DType::kF16 ? 1 : 2];
}

}  // namespace
}  // namespace triforce::cpu
