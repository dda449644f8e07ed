// The tiles of quantised weights (linear_kernels.h) over a vector type V of 16 floats and a format
// of codes. Included by one source per instruction level, which defines TF_ISA (the target
// attribute) and V first.
//
// A step is a group of the panel's depth: the scales of its 64 columns, then words of codes that
// follow each other in depth (quantised_panel.h). Sums of a group stay in registers, as those of
// linear_tile.h do; times their scales they are added to the panel's.
#ifndef TF_ISA
#error "define TF_ISA and V before including this file"
#endif
#include <algorithm>
#include <utility>

#include "cpu/linear_kernels.h"
#include "cpu/prefetch.h"
#include "cpu/quantised_panel.h"
#include "cpu/row_formats.h"

namespace triforce::cpu {
namespace {

template <class V, class F, int kBits>
struct QuantisedTile {
  using Query = typename F::Query;
  static constexpr int kVecs = kPanel / kLanes;
  static constexpr std::int64_t kWordRows = kWeightGroup * kBits / 32;
  static constexpr std::int64_t kDepth = 32 / kBits;  // of a word
  // Bytes ahead of the load: past the end of a page, where the hardware prefetcher stops.
  static constexpr std::int64_t kAhead = 4096;
  // Rows whose sums, with the loads of `vecs` vectors, a broadcast and a table of codes, fit into
  // the registers.
  static constexpr int rows_of(int vecs) { return (V::kRegisters - 2) / vecs - 1; }
  static constexpr int kMaxRows = std::min(kMaxTileRows, rows_of(V::kRegisters < 32 ? 1 : 2));
  static constexpr int width(int rows) {
    int vecs = kVecs;
    while (vecs > 1 && rows > std::max(rows_of(vecs), 1)) vecs /= 2;
    return vecs;
  }

  // acc[r][0..16 kWide) += x[r] . codes * scales of one group.
  template <int R, int kWide>
  TF_ISA_ALONE static void columns(const std::uint16_t* scales, const std::uint32_t* codes,
                                   const std::byte* x, std::int64_t x_stride_bytes, float* acc,
                                   std::int64_t ahead) {
    typename V::Vec sum[R][kWide];
    const Query* from[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      from[r] = reinterpret_cast<const Query*>(x + r * x_stride_bytes);
#pragma GCC unroll 4
      for (int j = 0; j < kWide; ++j) sum[r][j] = V::set1(0.0F);
    }
    for (std::int64_t k = 0; k < kWordRows; ++k, codes += kPanel) {
#pragma GCC unroll 4
      for (int j = 0; j < kWide; ++j) {
        prefetch_line(reinterpret_cast<const char*>(codes + j * kLanes) + ahead);
      }
#pragma GCC unroll 8
      for (int part = 0; part < F::kParts; ++part) {
        decltype(F::load(codes, 0)) weights[kWide];
#pragma GCC unroll 4
        for (int j = 0; j < kWide; ++j) weights[j] = F::load(codes + j * kLanes, part);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const auto factor = F::broadcast(from[r] + k * kDepth, part);
#pragma GCC unroll 4
          for (int j = 0; j < kWide; ++j) sum[r][j] = F::mad(sum[r][j], weights[j], factor);
        }
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < kWide; ++j) {
      const typename V::Vec scale = V::load(scales + j * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        float* const to = acc + r * kPanel + j * kLanes;
        V::store(to, V::fma(sum[r][j], scale, V::load(to)));
      }
    }
  }

  template <int R>
  TF_ISA static void tile(const std::byte* w, const std::byte* x, std::int64_t x_stride_bytes,
                          std::int64_t steps, float* acc, TileTurn turn) {
    constexpr int kWide = width(R);
    const std::int64_t ahead = turn.index == 0 ? kAhead : 0;
    for (std::int64_t s = 0; s < steps; ++s, w += kQuantisedStepBytes<kBits>) {
      const auto* scales = reinterpret_cast<const std::uint16_t*>(w);
      const auto* codes = reinterpret_cast<const std::uint32_t*>(w + kScaleBytes);
      const std::byte* from = x + s * kWeightGroup * std::int64_t{sizeof(Query)};
      for (int j = 0; j < kVecs; j += kWide) {
        columns<R, kWide>(scales + j * kLanes, codes + j * kLanes, from, x_stride_bytes,
                          acc + j * kLanes, ahead);
      }
    }
  }

  static TileSet set(XFormat format) {
    return set_of(format, std::make_integer_sequence<int, kMaxRows>());
  }

 private:
  template <int... kRows>
  static TileSet set_of(XFormat format, std::integer_sequence<int, kRows...> /*rows*/) {
    return {.x_format = format,
            .k_per_step = kWeightGroup,
            .max_rows = kMaxRows,
            .block_bytes = 4 * kQuantisedStepBytes<kBits>,
            .tiles = {nullptr, tile<kRows + 1>...}};
  }
};

// Codes in f32 arithmetic. x is f32, or f32 that holds bf16 values.
template <class V>
void set_code_tiles(LinearKernels& k) {
  const auto set = [](XFormat format) {
    return CodeTiles{.int8 = QuantisedTile<V, CodeFormat<V, 8>, 8>::set(format),
                     .int4 = QuantisedTile<V, CodeFormat<V, 4>, 4>::set(format)};
  };
  k.codes = set(XFormat::kF32);
  k.codes_bf16 = set(XFormat::kRoundedF32);
}

}  // namespace
}  // namespace triforce::cpu
