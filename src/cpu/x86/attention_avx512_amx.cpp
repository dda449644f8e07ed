// Attention kernels whose two products are AMX tiles: a block of 16 keys by 32 dimensions of K, and
// 32 keys by 16 dimensions of V, lie in memory as the second operand of tdpbf16ps. A row of a
// product depends on its own row of the first operand only.
#define TF_ISA                                                                      \
  __attribute__((                                                                   \
      target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c,amx-tile,amx-" \
             "bf16")))
#include <array>

#include "cpu/x86/amx_tiles.h"
#include "cpu/x86/dot512.h"
//
#include "cpu/attention_tile.h"
#include "cpu/x86/kernels.h"

namespace triforce::cpu {
namespace {

constexpr int kTileRows = 16;
constexpr std::int64_t kKeyBytes = 2;

struct TileConfigs {
  TileConfig of_rows[kTileRows + 1];
};
constexpr TileConfigs make_configs() {
  TileConfigs all;
  for (int rows = 1; rows <= kTileRows; ++rows) all.of_rows[rows] = make_tile_config(rows);
  return all;
}
constexpr TileConfigs kConfigs = make_configs();

TF_ISA_INLINE void configure(int rows) { _tile_loadconfig(&kConfigs.of_rows[rows]); }

// gcc's tile loads do not tell the compiler that they read memory.
TF_ISA_INLINE void finish_stores() { __asm__ volatile("" ::: "memory"); }

TF_ISA_INLINE void prefetch_lines(const std::byte* p, std::int64_t stride) {
  for (int i = 0; i < kTileRows; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(p + i * stride), _MM_HINT_T0);
  }
}

// One tile of keys against up to 16 rows.
struct Step {
  const std::byte *k, *v;
  const std::byte *next_k, *next_v;  // the tile to prefetch, null: none
  int tile, row, rows;
};

// s[rows, 64] = q[rows, d] . k
TF_ISA inline void scores(const std::byte* q, int d, const Step& step, float* s) {
  const std::int64_t q_stride = d * kKeyBytes, block = kLanes * q_stride;
  finish_stores();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int i = 0; i < d; i += 32) {
    const std::int64_t at = i * kLanes * kKeyBytes;
    const std::byte* k = step.k + at;
    if (step.next_k != nullptr) {
      for (int b = 0; b < 4; ++b) prefetch_lines(step.next_k + at + b * block, 64);
    }
    _tile_loadd(4, q + i * kKeyBytes, q_stride);
    _tile_loadd(5, k, 64);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, k + block, 64);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, k + 2 * block, 64);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, k + 3 * block, 64);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_stored(0, s, kTileKeys * 4);
  _tile_stored(1, s + kLanes, kTileKeys * 4);
  _tile_stored(2, s + 2 * kLanes, kTileKeys * 4);
  _tile_stored(3, s + 3 * kLanes, kTileKeys * 4);
}

// o[rows, 32 from dim] += p v, in two registers.
TF_ISA inline void values(const TileArgs& a, const Step& step, const std::uint16_t* p, int dim) {
  const std::int64_t stride = a.d * 4;  // of o, and of a pair of tokens in v
  float* o = a.o + static_cast<std::int64_t>(step.row) * a.d + dim;
  finish_stores();
  _tile_loadd(0, o, stride);
  _tile_loadd(1, o + kLanes, stride);
  for (int t = 0; t < kTileKeys; t += 32) {
    const std::int64_t at = t * a.d * kKeyBytes + dim * 4;
    const std::byte* v = step.v + at;
    if (step.next_v != nullptr) {
      prefetch_lines(step.next_v + at, stride);
      prefetch_lines(step.next_v + at + 64, stride);
    }
    _tile_loadd(4, p + t, kTileKeys * kKeyBytes);
    _tile_loadd(5, v, stride);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, v + 64, stride);
    _tile_dpbf16ps(1, 4, 6);
  }
  _tile_stored(0, o, stride);
  _tile_stored(1, o + kLanes, stride);
}

// The softmax of a step; rows of o whose maximum rose are brought to the new one.
TF_ISA inline void soften(const TileArgs& a, const Step& step, float* s, std::uint16_t* p) {
  alignas(64) float factor[kTileRows];
  AttentionTile<Avx512Vector, DotFormat>::softmax(a, step.tile, step.row, step.rows, s, p, factor);
  for (int r = 0; r < step.rows; ++r) {
    if (factor[r] == 1.0F) continue;
    float* o = a.o + static_cast<std::int64_t>(step.row + r) * a.d;
    const __m512 f = _mm512_set1_ps(factor[r]);
    for (int i = 0; i < a.d; i += kLanes) {
      _mm512_storeu_ps(o + i, _mm512_mul_ps(_mm512_loadu_ps(o + i), f));
    }
  }
}

// Products and exponentials take turns. While tiles are in use, an Intel Xeon multiplies vectors at
// half its rate: 256 fused multiply-adds took 37 ns alone and 76 between tile loads. So a pass that
// did both at once took no less time.
TF_ISA void run(const TileArgs& a) {
  if (a.d % 32 != 0) return attention_kernels_avx512_bf16().tiles(a);
  const int passes = (a.rows + kTileRows - 1) / kTileRows;
  const std::int64_t bytes = kTileKeys * a.d * kKeyBytes;
  const auto make_step = [&](int tile, int pass) {
    const int begin = a.rows * pass / passes, end = a.rows * (pass + 1) / passes;
    const auto next = [&](const std::byte* p) {
      return p == nullptr || pass > 0 ? nullptr : p + tile * bytes;
    };
    return Step{a.k + tile * bytes, a.v + tile * bytes, next(a.next_k), next(a.next_v), tile, begin,
                end - begin};
  };
  const auto score = [&](const Step& step, float* s)
                         TF_ISA { scores(a.q + step.row * a.d * kKeyBytes, a.d, step, s); };
  alignas(64) float s[kTileRows * kTileKeys];
  alignas(64) std::uint16_t p[kTileRows * kTileKeys];
  Step step = make_step(0, 0);
  configure(step.rows);
  score(step, s);
  for (int tile = 0, pass = 0; tile < a.tiles;) {
    soften(a, step, s, p);
    if (++pass == passes) {
      pass = 0;
      ++tile;
    }
    // The next scores come first, so that p has reached the cache when its tiles are loaded.
    const Step next = tile < a.tiles ? make_step(tile, pass) : step;
    if (next.rows != step.rows) configure(next.rows);
    if (tile < a.tiles) score(next, s);
    if (next.rows != step.rows) configure(step.rows);
    for (int dim = 0; dim < a.d; dim += 32) values(a, step, p, dim);
    if (next.rows != step.rows) configure(next.rows);
    step = next;
  }
  _tile_release();  // an idle tile state would be saved at every context switch
}

// Scales and zeros of a group's depths, as f32.
struct CodeScales {
  TF_ISA_INLINE explicit CodeScales(const CodeTile& a) {
    for (int i = 0; i < a.depths; i += kLanes) {
      _mm512_store_ps(scale + i, Avx512Vector::load(a.scales + i));
      _mm512_store_ps(zero + i, Avx512Vector::load(a.zeros + i));
    }
  }
  alignas(64) float scale[kMaxHeadDim], zero[kMaxHeadDim];
};

// Where the values of a group go. Two neighbours in depth lie side by side; strides are elements to
// the next two, and to the next block of 16 columns.
struct ValuesOut {
  std::uint16_t* out;
  std::int64_t pair_stride, block_stride;
  TF_ISA_INLINE void store(int depth, int block, __m512i values) const {
    _mm512_store_si512(out + depth / 2 * pair_stride + block * block_stride, values);
  }
};

// The values of a group's codes.
template <int kBits>
struct Unpack;
template <>
struct Unpack<8> {
  static constexpr int kOfWord = 4;
  // Of 16 words.
  TF_AVX512 __m512 values(const std::uint32_t* words, int place, const CodeScales& s, int depth) {
    return _mm512_fmadd_ps(Avx512Vector::codes<8>(words, place), _mm512_set1_ps(s.scale[depth]),
                           _mm512_set1_ps(s.zero[depth]));
  }
  TF_AVX512 void run(const CodeTile& a, const CodeScales& s, const ValuesOut& to) {
    static constexpr auto kPlaces = [] {  // the first 16 to even places, the others to odd ones
      std::array<std::uint16_t, 32> at{};
      for (std::size_t i = 0; i < 32; ++i) at[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * 16);
      return at;
    }();
    const __m512i places = _mm512_loadu_si512(kPlaces.data());
    for (int depth = 0; depth < a.depths; depth += kOfWord) {
      const std::uint32_t* words = a.words + depth / kOfWord * a.row_words;
      for (int b = 0; b < a.blocks; ++b, words += a.block_words) {
        prefetch_line(reinterpret_cast<const std::byte*>(words) + a.bytes);
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          const int at = depth + 2 * i;
          const __m512bh both =
              _mm512_cvtne2ps_pbh(values(words, i + 2, s, at + 1), values(words, i, s, at));
          to.store(at, b, _mm512_permutexvar_epi16(places, reinterpret_cast<__m512i>(both)));
        }
      }
    }
  }
};

// Codes of 4 bits have 16 values, so two neighbours in depth share one table, whose upper half is
// the odd one's.
template <>
struct Unpack<4> {
  static constexpr int kOfWord = 8, kPairs = kOfWord / 2;
  using Halves = std::uint16_t __attribute__((vector_size(64)));

  TF_AVX512 __m512i table(const float* scale, const float* zero) {
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    const __m512 even = _mm512_fmadd_ps(codes, _mm512_set1_ps(scale[0]), _mm512_set1_ps(zero[0]));
    const __m512 odd = _mm512_fmadd_ps(codes, _mm512_set1_ps(scale[1]), _mm512_set1_ps(zero[1]));
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
  }
  TF_AVX512 void run(const CodeTile& a, const CodeScales& s, const ValuesOut& to) {
    constexpr int kMaskAndUpper = 0xEA;  // (a & b) | c
    const __m512i nibble = _mm512_set1_epi16(15), upper = _mm512_set1_epi32(0x100000);
    for (int depth = 0; depth < a.depths; depth += kOfWord) {
      __m512i tables[kPairs];
#pragma GCC unroll 4
      for (int i = 0; i < kPairs; ++i) {
        tables[i] = table(s.scale + depth + 2 * i, s.zero + depth + 2 * i);
      }
      const std::uint32_t* words = a.words + depth / kOfWord * a.row_words;
#pragma GCC unroll 4
      for (int b = 0; b < a.blocks; ++b, words += a.block_words) {
        const auto codes = reinterpret_cast<Halves>(_mm512_loadu_si512(words));
        prefetch_line(reinterpret_cast<const std::byte*>(words) + a.bytes);
#pragma GCC unroll 4
        for (int i = 0; i < kPairs; ++i) {
          const auto shifted = reinterpret_cast<__m512i>(codes >> (4 * i));
          const __m512i at = _mm512_ternarylogic_epi32(shifted, nibble, upper, kMaskAndUpper);
          to.store(depth + 2 * i, b, _mm512_permutexvar_epi16(at, tables[i]));
        }
      }
    }
  }
};

// A row costs a product of tiles little, so a group becomes a tile of values, for all rows.
template <int kBits>
TF_ISA void run_groups(const TileArgs& a, const CodeTile& first_k, const CodeTile& first_v) {
  alignas(64) std::uint16_t keys[kTileKeys * kMaxHeadDim], values_of[kTileKeys * kMaxHeadDim];
  CodeTile k = first_k, v = first_v;
  TileArgs one = a;
  one.tiles = 1;
  one.k = reinterpret_cast<const std::byte*>(keys);
  one.v = reinterpret_cast<const std::byte*>(values_of);
  one.next_k = one.next_v = nullptr;
  for (int tile = 0; tile < a.tiles; ++tile, k.advance(), v.advance()) {
    Unpack<kBits>::run(k, CodeScales(k), {keys, 2 * kLanes, std::int64_t{kLanes} * a.d});
    Unpack<kBits>::run(v, CodeScales(v), {values_of, 2 * a.d, 2 * kLanes});
    run(one);
  }
}

}  // namespace

const AttentionKernels& attention_kernels_amx() {
  static const AttentionKernels kTable = [] {
    AttentionKernels t = attention_kernels_avx512_bf16();
    t.tiles = run;
    t.int8_groups = run_groups<8>;
    t.int4_groups = run_groups<4>;
    // A prompt's attention took .65 to .93 of the time that it took with 64 rows (an Intel Xeon).
    t.prompt_rows = kMostPromptRows;
    return t;
  }();
  return kTable;
}

}  // namespace triforce::cpu
