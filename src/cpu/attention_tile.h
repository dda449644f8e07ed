// The kernels of attention_kernels.h over a vector type V of 16 floats and a row format F. Included
// by one source per instruction level, which defines TF_ISA (the target attribute) and V first.
//
// V has kMaxRows, query rows per pass over a tile, kMaxPairRows, those where a load gives two
// vectors, and blocks(rows), the vectors per row such that all accumulators stay in registers.
// Tests: tests/cpu/attention/attention_test.cpp, tests/cpu/attention/invariance_test.cpp,
// tests/cpu/attention/mass_test.cpp
#ifndef TF_ISA
#error "define TF_ISA and V before including this file"
#endif
#include "cpu/attention_kernels.h"
#include "cpu/kv_layout.h"
#include "cpu/prefetch.h"
#include "cpu/row_formats.h"

namespace triforce::cpu {
namespace {

// Query rows of a pass that make it long against the reading of its tile.
constexpr int kManyRows = 12;

template <class V, class F>
struct AttentionTile {
  using Vec = typename V::Vec;
  using Element = typename F::Element;
  using Query = typename F::Query;
  static constexpr int kVecs = kTileKeys / kLanes;
  static constexpr int kMaxRows = F::kLoaded > 1 ? V::kMaxPairRows : V::kMaxRows;

  // A pass of few rows has too little time for a tile's requests in the first two steps, so they go
  // on all along. In a pass of many rows those two are long enough, and shifts would cost 3%.
  static constexpr bool kSpreads = V::kMaxRows < kManyRows;

  // What is asked for while bytes [0, n) are read: as many from `begin` on, or half as many.
  struct Request {
    const std::byte* begin;
    int halvings = 0;
    [[gnu::always_inline]] Request from(std::int64_t at) const {
      return {begin + (kSpreads ? at >> halvings : at), halvings};
    }
    [[gnu::always_inline]] void line(std::int64_t at) const { prefetch_line(from(at).begin); }
  };

  // s[r][.] = q[r] . k of kBlocks key blocks. The same places of `next` are requested, always: with
  // a branch in the loop GCC would keep the loaded keys on the stack.
  template <int R, int kBlocks>
  TF_ISA_ALONE static void scores(const Element* k, const Query* q, int d, float* s,
                                  const Request& next) {
    Vec acc[R][kBlocks];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) acc[r][b] = V::set1(0.0F);
    }
    const std::int64_t block = static_cast<std::int64_t>(d) * kLanes;
    for (int i = 0; i < d; i += F::kPair) {
      decltype(F::load(k)) keys[kBlocks];
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) {
        const std::int64_t at = b * block + static_cast<std::int64_t>(i) * kLanes;
        keys[b] = F::load(k + at);
        next.line(at * std::int64_t{sizeof(Element)});
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const auto x = F::broadcast(q + static_cast<std::int64_t>(r) * d + i);
#pragma GCC unroll 16
        for (int b = 0; b < kBlocks; ++b) acc[r][b] = F::mad(acc[r][b], keys[b], x);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) V::store(s + r * kTileKeys + b * kLanes, acc[r][b]);
    }
  }

  // Scores s[rows, kTileKeys] of at most kLanes rows to probabilities p at each row's new maximum;
  // factor[r] is what the row's earlier sums have to be multiplied by.
  TF_ISA_INLINE static void softmax(const TileArgs& a, int tile, int row, int rows, float* s,
                                    Query* p, float* factor) {
    alignas(64) float before[kLanes] = {};
    alignas(64) float now[kLanes] = {};
    for (int r = 0; r < rows; ++r) {
      float* x = s + r * kTileKeys;
      if (a.visible != nullptr) {
        for (int j = 0; j < kVecs; ++j) {
          V::store(x + j * kLanes,
                   V::keep(V::load(x + j * kLanes), a.visible[row + r] - j * kLanes));
        }
      }
      const float top =
          V::max_lane(V::max(V::max(V::load(x), V::load(x + kLanes)),
                             V::max(V::load(x + 2 * kLanes), V::load(x + 3 * kLanes))));
      before[r] = a.m[row + r];
      now[r] = top > before[r] ? top : before[r];
      a.m[row + r] = now[r];
    }
    // All rows at once: one exponential per row would be a long chain of its own.
    V::store(factor, V::exp2(V::sub(V::load(before), V::load(now))));
    for (int r = 0; r < rows; ++r) {
      Vec x[kVecs];
      const Vec shift = V::set1(now[r]);
      for (int j = 0; j < kVecs; ++j) {
        x[j] = V::exp2(V::sub(V::load(s + r * kTileKeys + j * kLanes), shift));
      }
      float* sums = a.l + static_cast<std::int64_t>(row + r) * kLanes;
      Vec l = V::mul(V::load(sums), V::set1(factor[r]));
      l = F::pack(x[0], x[1], p + r * kTileKeys, l);
      l = F::pack(x[2], x[3], p + r * kTileKeys + 2 * kLanes, l);
      V::store(sums, l);
      if (a.mass != nullptr) write_mass(a, tile, row + r, x);
    }
  }

  TF_ISA_INLINE static void write_mass(const TileArgs& a, int tile, int row, const Vec* x) {
    const std::int64_t at = static_cast<std::int64_t>(tile) * a.rows + row;
    a.mass_m[at] = a.m[row];
    if (a.mass_unit == 1) {
      for (int j = 0; j < kVecs; ++j) V::store(a.mass + at * kTileKeys + j * kLanes, x[j]);
    } else {
      V::sums_of_8(x, a.mass + at * (kTileKeys / 8));
    }
  }

  // o[r][16 kBlocks dimensions] = factor[r] o + p[r] v
  template <int R, int kBlocks>
  TF_ISA_ALONE static void values(const Element* v, const Query* p, int d, const float* factor,
                                  float* o, const Request& next) {
    Vec acc[R][kBlocks];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vec f = V::set1(factor[r]);
      // Adding +0 keeps a zero positive, so that a masked tile leaves it as it was.
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) {
        acc[r][b] =
            V::fma(V::load(o + static_cast<std::int64_t>(r) * d + b * kLanes), f, V::set1(0.0F));
      }
    }
    for (int t = 0; t < kTileKeys; t += F::kPair) {
      decltype(F::load(v)) rows[kBlocks];
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) {
        const std::int64_t at = static_cast<std::int64_t>(t) * d + b * kLanes * F::kPair;
        rows[b] = F::load(v + at);
        next.line(at * std::int64_t{sizeof(Element)});
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const auto x = F::broadcast(p + r * kTileKeys + t);
#pragma GCC unroll 16
        for (int b = 0; b < kBlocks; ++b) acc[r][b] = F::mad(acc[r][b], rows[b], x);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) {
        V::store(o + static_cast<std::int64_t>(r) * d + b * kLanes, acc[r][b]);
      }
    }
  }

  // A Source is one tile: where it lies, and what is requested with its keys and with its values.
  struct Source {
    const Element *k, *v;
    Request with_k, with_v;
  };

  template <int R, int kBlocks>
  TF_ISA static void values_from(const TileArgs& a, const Source& from, int row, const Query* p,
                                 const float* factor, int& dim) {
    for (; dim + kBlocks * kLanes <= a.d; dim += kBlocks * kLanes) {
      const std::int64_t at = static_cast<std::int64_t>(dim) * F::kPair;
      values<R, kBlocks>(from.v + at, p, a.d, factor,
                         a.o + static_cast<std::int64_t>(row) * a.d + dim,
                         from.with_v.from(at * std::int64_t{sizeof(Element)}));
    }
  }

  template <int R>
  TF_ISA static void rows(const TileArgs& a, const Source& from, int tile, int row) {
    alignas(64) float s[R * kTileKeys];
    alignas(64) Query p[R * kTileKeys];
    alignas(64) float factor[kLanes];
    constexpr int kBlocks = V::blocks(R);
    const auto* q = reinterpret_cast<const Query*>(a.q) + static_cast<std::int64_t>(row) * a.d;
    for (int b = 0; b < kVecs; b += kBlocks) {
      const std::int64_t at = static_cast<std::int64_t>(b) * a.d * kLanes;
      scores<R, kBlocks>(from.k + at, q, a.d, s + b * kLanes,
                         from.with_k.from(at * std::int64_t{sizeof(Element)}));
    }
    softmax(a, tile, row, R, s, p, factor);
    int dim = 0;
    values_from<R, kBlocks>(a, from, row, p, factor, dim);
    if constexpr (kBlocks > 2) values_from<R, 2>(a, from, row, p, factor, dim);
    if constexpr (kBlocks > 1) values_from<R, 1>(a, from, row, p, factor, dim);
  }

  template <int R>
  TF_ISA static void rows_of(const TileArgs& a, const Source& from, int tile, int row, int count) {
    if constexpr (R > 1) {
      if (count < R) return rows_of<R - 1>(a, from, tile, row, count);
    }
    rows<R>(a, from, tile, row);
  }

  // The first pass requests the keys of the next tile with its own, the second, or the first if it
  // is the only one, the values; where they spread, both with their keys and with their values.
  static void request_next(const TileArgs& a, std::int64_t at, std::int64_t half, int pass,
                           int passes, Source& from) {
    if (!kSpreads || passes == 1) {
      if (pass == 0) from.with_k = {a.next_k + at};
      if (pass == (passes > 1 ? 1 : 0)) from.with_v = {a.next_v + at};
    } else if (pass < 2) {
      const std::byte* next = (pass == 0 ? a.next_k : a.next_v) + at;
      from.with_k = {next, 1};
      from.with_v = {next + half, 1};
    }
  }

  TF_ISA static void run(const TileArgs& a) {
    // Passes are as even as possible: if one takes 12 rows, 13 rows are 7 and 6, not 12 and 1.
    const int passes = (a.rows + kMaxRows - 1) / kMaxRows;
    const std::int64_t bytes = std::int64_t{kTileKeys} * a.d * std::int64_t{sizeof(Element)};
    for (int tile = 0; tile < a.tiles; ++tile) {
      const std::byte* k = a.k + tile * bytes;
      const std::byte* v = a.v + tile * bytes;
      for (int pass = 0, row = 0; pass < passes; ++pass) {
        const int count = (a.rows - row + passes - pass - 1) / (passes - pass);
        Source from{
            reinterpret_cast<const Element*>(k), reinterpret_cast<const Element*>(v), {k}, {v}};
        if (a.next_k != nullptr) request_next(a, tile * bytes, bytes / 2, pass, passes, from);
        rows_of<kMaxRows>(a, from, tile, row, count);
        row += count;
      }
    }
  }
};

template <class V, class F>
struct KeyKernels {
  using Vec = typename V::Vec;
  using Element = typename F::Element;

  TF_ISA static void dots(const std::byte* k, const float* q, int d, std::int64_t blocks,
                          float* out) {
    const auto* keys = reinterpret_cast<const Element*>(k);
    const std::int64_t block = static_cast<std::int64_t>(d) * kLanes;
    std::int64_t b = 0;
    for (; b + 4 <= blocks; b += 4) {
      Vec acc[4] = {V::set1(0.0F), V::set1(0.0F), V::set1(0.0F), V::set1(0.0F)};
      for (int i = 0; i < d; i += F::kPair) {
        const auto x = F::broadcast(q + i);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          const Element* at = keys + (b + j) * block + static_cast<std::int64_t>(i) * kLanes;
          acc[j] = F::mad(acc[j], F::load(at), x);
          // Past the end of a page, where the hardware prefetcher stops; never dereferenced.
          prefetch_line(at + 4 * block);
        }
      }
      for (int j = 0; j < 4; ++j) V::store(out + (b + j) * kLanes, acc[j]);
    }
    for (; b < blocks; ++b) {
      Vec acc = V::set1(0.0F);
      for (int i = 0; i < d; i += F::kPair) {
        acc = F::mad(acc, F::load(keys + b * block + static_cast<std::int64_t>(i) * kLanes),
                     F::broadcast(q + i));
      }
      V::store(out + b * kLanes, acc);
    }
  }

  TF_ISA static void collapse(const float* m, const float* row_m, const float* row_inverse,
                              std::int64_t rows, int units, float* sums) {
    alignas(64) float total[kTileKeys] = {};
    for (std::int64_t first = 0; first < rows; first += kLanes) {
      const std::int64_t count = rows - first < kLanes ? rows - first : kLanes;
      alignas(64) float weight[kLanes] = {}, largest[kLanes] = {}, inverse[kLanes] = {};
      for (std::int64_t r = 0; r < count; ++r) {
        weight[r] = m[first + r];
        largest[r] = row_m[first + r];
        inverse[r] = row_inverse[first + r];
      }
      V::store(weight,
               V::mul(V::exp2(V::sub(V::load(weight), V::load(largest))), V::load(inverse)));
      for (std::int64_t r = 0; r < count; ++r) {
        const float* row = sums + (first + r) * units;
        for (int u = 0; u < units; u += 8) {
          for (int j = 0; j < 8; ++j) total[u + j] += weight[r] * row[u + j];
        }
      }
    }
    for (int u = 0; u < units; ++u) sums[u] = total[u];
  }

  TF_ISA static void rotate(const std::byte* k, const float* cos, const float* sin,
                            const std::int32_t* rows, int d, std::byte* out) {
    const auto* from = reinterpret_cast<const Element*>(k);
    auto* to = reinterpret_cast<Element*>(out);
    const int half = d / 2;
    constexpr int kDims = 8;                                 // half is a multiple of it
    alignas(64) float c[kDims * kLanes], s[kDims * kLanes];  // [dim][lane]
    for (int first = 0; first < half; first += kDims) {
      V::transpose(cos + first, rows, half, c);
      V::transpose(sin + first, rows, half, s);
      for (int i = 0; i < kDims; i += F::kPair) {
        const std::int64_t at = static_cast<std::int64_t>(first + i) * kLanes;
        auto low = F::load(from + at);
        auto high = F::load(from + at + static_cast<std::int64_t>(half) * kLanes);
        F::rotate(low, high, c + i * kLanes, s + i * kLanes);
        F::store(to + at, low);
        F::store(to + at + static_cast<std::int64_t>(half) * kLanes, high);
      }
    }
  }
};

// If a pass takes many rows, converting with each costs less than storing what was converted.
template <class V, class F>
constexpr auto kWiden = V::kMaxRows < kManyRows ? widen<V, F> : nullptr;

}  // namespace
}  // namespace triforce::cpu
