// Attention kernels whose two products are AMX tiles: a block of 16 keys by 32 dimensions of K, and
// 32 keys by 16 dimensions of V, lie in memory as the second operand of tdpbf16ps. A row of a
// product depends on its own row of the first operand only.
#define TF_ISA                                                                      \
  __attribute__((                                                                   \
      target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c,amx-tile,amx-" \
             "bf16")))
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

// s[rows, 64] = q . k
TF_ISA inline void scores(const TileArgs& a, const Step& step, float* s) {
  const std::int64_t q_stride = a.d * kKeyBytes, block = kLanes * q_stride;
  const std::byte* q = a.q + step.row * q_stride;
  finish_stores();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int i = 0; i < a.d; i += 32) {
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
  alignas(64) float s[kTileRows * kTileKeys];
  alignas(64) std::uint16_t p[kTileRows * kTileKeys];
  Step step = make_step(0, 0);
  configure(step.rows);
  scores(a, step, s);
  for (int tile = 0, pass = 0; tile < a.tiles;) {
    soften(a, step, s, p);
    if (++pass == passes) {
      pass = 0;
      ++tile;
    }
    // The next scores come first, so that p has reached the cache when its tiles are loaded.
    const Step next = tile < a.tiles ? make_step(tile, pass) : step;
    if (next.rows != step.rows) configure(next.rows);
    if (tile < a.tiles) scores(a, next, s);
    if (next.rows != step.rows) configure(step.rows);
    for (int dim = 0; dim < a.d; dim += 32) values(a, step, p, dim);
    if (next.rows != step.rows) configure(next.rows);
    step = next;
  }
  _tile_release();  // an idle tile state would be saved at every context switch
}

}  // namespace

const AttentionKernels& attention_kernels_amx() {
  static const AttentionKernels kTable = [] {
    AttentionKernels t = attention_kernels_avx512_bf16();
    t.tiles = run;
    t.int4_tile = nullptr;  // its sums have other bits
    t.max_int4_rows = 0;
    return t;
  }();
  return kTable;
}

}  // namespace triforce::cpu
