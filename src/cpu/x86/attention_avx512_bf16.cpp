// Attention kernels whose two products are vdpbf16ps.
#define TF_ISA __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c")))
#include "cpu/x86/dot512.h"
//
#include "cpu/attention_tile.h"
#include "cpu/x86/kernels.h"

namespace triforce::cpu {
namespace {

// Rounds with the instruction for it instead of integer arithmetic; subnormals become 0.
struct RotatedFormat : PairFormat<Avx512Vector> {
  TF_AVX512 void store(std::uint16_t* p, const Two& x) {
    const auto apart = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x.odd, x.even));
    const __m512i order = _mm512_or_si512(_mm512_set1_epi32(0x100000), ramp());
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(order, apart));
  }

 private:
  // Lane i holds i in both halves; with 16 added to the upper one, word 2i is even i, 2i + 1 odd i.
  TF_AVX512 __m512i ramp() {
    const __m512i i = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_or_si512(i, _mm512_slli_epi32(i, 16));
  }
};

// The values of codes of 4 bits, in one table for two neighbours in depth: each has 16, and the odd
// one's are the upper half.
TF_ISA inline __m512i pair_table(const float* scale, const float* zero) {
  const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  const __m512 even = _mm512_fmadd_ps(codes, _mm512_set1_ps(scale[0]), _mm512_set1_ps(zero[0]));
  const __m512 odd = _mm512_fmadd_ps(codes, _mm512_set1_ps(scale[1]), _mm512_set1_ps(zero[1]));
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
}
constexpr int kOfWord = 8, kPairs = kOfWord / 2;

// sink.take(depth, block, values) of each pair in depth, for blocks of [0, kBlocks) from `first`
// on. Their tables are made once for all blocks.
template <int kBlocks, class Sink>
TF_ISA_INLINE void read_pairs(const CodeTile& a, const CodeScales<Avx512Vector>& s, int first,
                              const Sink& sink) {
  using Halves = std::uint16_t __attribute__((vector_size(64)));
  constexpr int kMaskAndUpper = 0xEA;  // (a & b) | c
  const __m512i nibble = _mm512_set1_epi16(15), upper = _mm512_set1_epi32(0x100000);
  const std::uint32_t* words = a.words + first * a.block_words;
  for (int depth = 0; depth < a.depths; depth += kOfWord, words += a.row_words) {
    __m512i tables[kPairs];
#pragma GCC unroll 4
    for (int i = 0; i < kPairs; ++i) {
      tables[i] = pair_table(s.scale + depth + 2 * i, s.zero + depth + 2 * i);
    }
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      const std::uint32_t* const from = words + b * a.block_words;
      const auto codes = reinterpret_cast<Halves>(_mm512_loadu_si512(from));
      prefetch_line(reinterpret_cast<const std::byte*>(from) + a.ahead);
#pragma GCC unroll 4
      for (int i = 0; i < kPairs; ++i) {
        const auto shifted = reinterpret_cast<__m512i>(codes >> (4 * i));
        const __m512i at = _mm512_ternarylogic_epi32(shifted, nibble, upper, kMaskAndUpper);
        sink.take(depth + 2 * i, b, _mm512_permutexvar_epi16(at, tables[i]));
      }
    }
  }
}

struct StorePairs {
  std::uint16_t* out;
  std::int64_t depth_out, block_out;
  TF_ISA_INLINE void take(int depth, int block, __m512i values) const {
    _mm512_storeu_si512(out + depth * depth_out + block * block_out, values);
  }
};
TF_ISA void unpack_by_tables(const CodeTile& tile) {
  const CodeTile a = tile;  // no store may change it
  const CodeScales<Avx512Vector> s(a);
  StorePairs store{reinterpret_cast<std::uint16_t*>(a.out), a.depth_out, a.block_out};
  int block = 0;
  for (; block + 4 <= a.blocks; block += 4, store.out += 4 * a.block_out) {
    read_pairs<4>(a, s, block, store);
  }
  for (; block < a.blocks; ++block, store.out += a.block_out) read_pairs<1>(a, s, block, store);
}

// One group against few rows, without a tile in memory. The sums have the order, and so the bits,
// of AttentionTile's.
struct CodeAttention {
  using Tile = AttentionTile<Avx512Vector, DotFormat>;
  static constexpr int kMaxRows = 4;  // their sums of four blocks, and tables, are in registers

  // sum[r][block] += x[r, depth] . values
  template <int R, int kBlocks>
  struct Multiply {
    const std::uint16_t* x;
    int stride;
    __m512 (*sum)[kBlocks];
    TF_ISA_INLINE void take(int depth, int block, __m512i values) const {
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        sum[r][block] = DotFormat::mad(sum[r][block], reinterpret_cast<__m512bh>(values),
                                       DotFormat::broadcast(x + r * stride + depth));
      }
    }
  };

  // o[r, 16 kBlocks dimensions] = factor[r] o + p[r] values
  template <int R, int kBlocks>
  TF_ISA static void add_values(const TileArgs& a, const CodeTile& v,
                                const CodeScales<Avx512Vector>& s, int first,
                                const std::uint16_t* p, const float* factor) {
    __m512 sum[R][kBlocks];
    float* const o = a.o + first * kLanes;
    for (int r = 0; r < R; ++r) {
      for (int b = 0; b < kBlocks; ++b) {
        sum[r][b] = _mm512_fmadd_ps(_mm512_loadu_ps(o + r * a.d + b * kLanes),
                                    _mm512_set1_ps(factor[r]), _mm512_setzero_ps());
      }
    }
    read_pairs<kBlocks>(v, s, first, Multiply<R, kBlocks>{p, kTileKeys, sum});
    for (int r = 0; r < R; ++r) {
      for (int b = 0; b < kBlocks; ++b) _mm512_storeu_ps(o + r * a.d + b * kLanes, sum[r][b]);
    }
  }

  template <int R>
  TF_ISA static void rows(const TileArgs& a, const CodeTile& k, const CodeTile& v) {
    alignas(64) float s[R * kTileKeys];
    alignas(64) std::uint16_t p[R * kTileKeys];
    alignas(64) float factor[kLanes];
    __m512 sum[R][4] = {};
    const CodeScales<Avx512Vector> of_keys(k), of_values(v);
    const auto* q = reinterpret_cast<const std::uint16_t*>(a.q);
    read_pairs<4>(k, of_keys, 0, Multiply<R, 4>{q, a.d, sum});
    for (int r = 0; r < R; ++r) {
      for (int b = 0; b < 4; ++b) _mm512_store_ps(s + r * kTileKeys + b * kLanes, sum[r][b]);
    }
    Tile::softmax(a, 0, 0, R, s, p, factor);
    int block = 0;
    for (; block + 4 <= v.blocks; block += 4) add_values<R, 4>(a, v, of_values, block, p, factor);
    for (; block < v.blocks; ++block) add_values<R, 1>(a, v, of_values, block, p, factor);
  }

  TF_ISA static void run(const TileArgs& a, const CodeTile& k, const CodeTile& v) {
    static constexpr void (*kRows[])(const TileArgs&, const CodeTile&, const CodeTile&) = {
        rows<1>, rows<2>, rows<3>, rows<4>};
    kRows[a.rows - 1](a, k, v);
  }
};

}  // namespace

const AttentionKernels& attention_kernels_avx512_bf16() {
  static const AttentionKernels kTable = [] {
    AttentionKernels t = attention_kernels_avx512(DType::kBF16);
    t.tiles = AttentionTile<Avx512Vector, DotFormat>::run;
    t.rotate = KeyKernels<Avx512Vector, RotatedFormat>::rotate;
    t.bf16_queries = true;
    t.unpack_int8 = unpack_codes<Avx512Vector, RotatedFormat, 8>;
    t.unpack_int4 = unpack_by_tables;
    t.int4_tile = CodeAttention::run;
    t.max_int4_rows = CodeAttention::kMaxRows;
    t.widen = nullptr;
    return t;
  }();
  return kTable;
}

}  // namespace triforce::cpu
