// The tiles of linear_kernels.h over a vector type V of 16 floats and a row format F
// (row_formats.h). Included by one source per instruction level, which defines TF_ISA (the target
// attribute) and V first. V has kRegisters, the vectors that the registers hold.
//
// All sums of a tile stay in registers: of 64 columns for few rows, of 32 or 16 at a time for more,
// a block of the panel's depth after the other, so that each weight comes from memory once:
//
//       depth ->                       few rows: | all 64 columns, whole depth            |
//   64  +-------+-------+----         more rows: | 1 | 3 | 5 |     16 or 32 columns by
//  col. | block | next  |                        | 2 | 4 | 6 |     one block, in this order
//       +-------+-------+----
#ifndef TF_ISA
#error "define TF_ISA and V before including this file"
#endif
#include <algorithm>
#include <utility>

#include "core/rounding.h"
#include "cpu/linear_kernels.h"
#include "cpu/prefetch.h"
#include "cpu/row_formats.h"

namespace triforce::cpu {
namespace {

template <class V, class F>
struct LinearTile {
  using Vec = typename V::Vec;
  using Element = typename F::Element;
  using Query = typename F::Query;
  static constexpr int kVecs = kPanel / kLanes;
  static constexpr std::int64_t kVecElements = std::int64_t{kLanes} * F::kPair;
  static constexpr std::int64_t kStepElements = kPanel * F::kPair;
  static constexpr std::int64_t kStepBytes = kStepElements * std::int64_t{sizeof(Element)};
  // Half of a first-level cache, in which all tiles of rows but the first find it.
  static constexpr std::int64_t kBlockBytes = 16 << 10, kBlockSteps = kBlockBytes / kStepBytes;
  // Bytes ahead of the load: past the end of a page, where the hardware prefetcher stops.
  static constexpr std::int64_t kAhead = 4096;
  // Rows whose sums, with the loads of `vecs` vectors and a broadcast, fit into the registers.
  static constexpr int rows_of(int vecs) { return (V::kRegisters - 1) / vecs - F::kLoaded; }
  // With one vector a step a broadcast is read for each product, so that more rows are no faster.
  static constexpr int kMaxRows = std::min(kMaxTileRows, rows_of(V::kRegisters < 32 ? 1 : 2));

  // Vectors of a step that go with R rows.
  static constexpr int width(int rows) {
    int vecs = kVecs;
    while (vecs > 1 && rows > std::max(rows_of(vecs), 1)) vecs /= 2;
    return vecs;
  }

  // acc[r][0..16 kWide) += x[r] . w, and requests from `ahead` on: for as many bytes, or for half
  // of them. A constant, as another register in the loop costs 2% of the time of 8 rows.
  template <int R, int kWide, bool kHalf>
  TF_ISA_ALONE static void columns(const Element* w, const std::byte* x,
                                   std::int64_t x_stride_bytes, std::int64_t steps, float* acc,
                                   const char* ahead) {
    constexpr std::int64_t kBytes = kWide * kVecElements * sizeof(Element) / (kHalf ? 2 : 1);
    Vec sum[R][kWide];
    const Query* from[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      from[r] = reinterpret_cast<const Query*>(x + r * x_stride_bytes);
#pragma GCC unroll 4
      for (int j = 0; j < kWide; ++j) sum[r][j] = V::load(acc + r * kPanel + j * kLanes);
    }
    for (std::int64_t s = 0; s < steps; ++s, w += kStepElements, ahead += kBytes) {
      for (std::int64_t line = 0; line < kBytes; line += 64) prefetch_line(ahead + line);
      decltype(F::load(w)) weights[kWide];
#pragma GCC unroll 4
      for (int j = 0; j < kWide; ++j) weights[j] = F::load(w + j * kVecElements);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const auto factor = F::broadcast(from[r] + s * F::kPair);
#pragma GCC unroll 4
        for (int j = 0; j < kWide; ++j) sum[r][j] = F::mad(sum[r][j], weights[j], factor);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kWide; ++j) V::store(acc + r * kPanel + j * kLanes, sum[r][j]);
    }
  }

  // A block of `steps` steps; `ahead` is where the next one begins.
  template <int R, bool kHalf>
  TF_ISA static void block(const Element* w, const std::byte* x, std::int64_t x_stride_bytes,
                           std::int64_t steps, float* acc, const char* ahead) {
    constexpr int kWide = width(R);
    constexpr std::int64_t kElements = kWide * kVecElements;
    constexpr std::int64_t kBytes = kElements * sizeof(Element) / (kHalf ? 2 : 1);
    for (int j = 0; j < kVecs; j += kWide, w += kElements, ahead += steps * kBytes) {
      columns<R, kWide, kHalf>(w, x, x_stride_bytes, steps, acc + j * kLanes, ahead);
    }
  }

  // The first two of several tiles request a half of the next block each, the others what they
  // have. So memory is at work while both of two tiles (15 rows and more) compute. When the first
  // one asked for all, 16 rows of a 4096 x 4096 layer of bf16 took 1.73 times one row on one
  // thread. Now they take 1.43, where the rate of matrix products allows 1.38 (`triforce-op-bench
  // --threads=1 --benchmark_filter=^linear/7b_out/`).
  template <int R>
  TF_ISA static void tile(const std::byte* w, const std::byte* x, std::int64_t x_stride_bytes,
                          std::int64_t steps, float* acc, TileTurn turn) {
    constexpr bool kWhole = width(R) == kVecs;  // in one block, requests kAhead bytes ahead
    const std::int64_t most = kWhole ? steps : block_steps(steps, kBlockSteps);
    for (std::int64_t s = 0; s < steps; s += most) {
      const std::int64_t count = std::min(most, steps - s);
      const std::byte* from = x + s * F::kPair * std::int64_t{sizeof(Query)};
      const auto* here = reinterpret_cast<const Element*>(w + s * kStepBytes);
      const char* ahead = reinterpret_cast<const char*>(here);
      if (turn.index < 2) ahead += kWhole ? kAhead : count * kStepBytes;
      if (kWhole || turn.count == 1) {
        block<R, false>(here, from, x_stride_bytes, count, acc, ahead);
      } else {
        if (turn.index == 1) ahead += count * kStepBytes / 2;
        block<R, !kWhole>(here, from, x_stride_bytes, count, acc, ahead);
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
            .k_per_step = F::kPair,
            .max_rows = kMaxRows,
            .block_bytes = kBlockBytes,
            .tiles = {nullptr, tile<kRows + 1>...}};
  }
};

// f32, f16 and bf16 weights in f32 arithmetic.
template <class V>
void set_float_tiles(LinearKernels& k) {
  k.f32 = LinearTile<V, PlainFormat<V, float>>::set(XFormat::kF32);
  k.f16 = LinearTile<V, PlainFormat<V, std::uint16_t>>::set(XFormat::kF32);
  k.bf16 = LinearTile<V, PairFormat<V>>::set(XFormat::kRoundedF32);
  k.widen_f32 = widen<V, PlainFormat<V, float>>;
  k.widen_f16 = widen<V, PlainFormat<V, std::uint16_t>>;
  k.widen_bf16 = widen<V, PairFormat<V>>;
}

}  // namespace
}  // namespace triforce::cpu
