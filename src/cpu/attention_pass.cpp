#include "cpu/attention_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/float16.h"
#include "cpu/kv_groups.h"
#include "cpu/kv_ops.h"

namespace triforce::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct Tile {
  const std::byte* k;
  const std::byte* v;
};

std::int64_t tile_bytes(const AttentionPass& pass) {
  return pass.kv->format.bytes(std::int64_t{kTileKeys} * pass.d);
}

// The valid keys of the tile at `start`, the others zero: what lies beyond `length` is never read,
// since it may be NaN and beyond the capacity.
Tile partial_tile(const AttentionPass& pass, Tile source, std::int64_t start,
                  const TileBuffers& buffers) {
  const std::int64_t size = pass.kv->format.bytes(1), row_bytes = pass.d * size;
  const int pair = pairing(pass.kv->format.type);
  const std::int64_t valid = pass.length - start;
  const std::int64_t k_bytes = ceil_div(valid, kKeyBlock) * kKeyBlock * row_bytes;
  std::memcpy(buffers.k, source.k, static_cast<std::size_t>(k_bytes));
  std::memset(buffers.k + k_bytes, 0, static_cast<std::size_t>(kTileKeys * row_bytes - k_bytes));
  const std::int64_t v_bytes = valid / pair * pair * row_bytes;
  std::memcpy(buffers.v, source.v, static_cast<std::size_t>(v_bytes));
  std::memset(buffers.v + v_bytes, 0, static_cast<std::size_t>(kTileKeys * row_bytes - v_bytes));
  if (valid % pair != 0) {
    for (std::int64_t i = 0; i < pass.d; ++i) {
      std::memcpy(buffers.v + v_bytes + i * pair * size, source.v + v_bytes + i * pair * size,
                  static_cast<std::size_t>(size));
    }
  }
  return {buffers.k, buffers.v};
}

// The tile at `start` of `length` keys.
void rotate_tile(const AttentionPass& pass, const std::byte* k, std::int64_t start,
                 std::int64_t length, std::byte* out) {
  const std::int64_t block_bytes = pass.kv->format.bytes(kKeyBlock * pass.d);
  for (int b = 0; b < kTileKeys / kKeyBlock; ++b) {
    std::int32_t rows[kKeyBlock];
    for (int t = 0; t < kKeyBlock; ++t) {
      const std::int64_t row = start + b * kKeyBlock + t;
      rows[t] = static_cast<std::int32_t>(std::min(row, length - 1));  // the others are masked
    }
    pass.kernels->rotate(k + b * block_bytes, pass.cos, pass.sin, rows, pass.d,
                         out + b * block_bytes);
  }
}

// Attention of a.tiles groups from `start` on. All rows of a pass see all groups.
void run_groups(const AttentionPass& pass, std::int64_t head, std::int64_t start,
                const TileArgs& a) {
  static_assert(kKvGroup == kTileKeys);
  const Quantisation by = pass.kv->older.quantisation;
  const GroupBytes from = group_bytes(*pass.kv, head, start / kKvGroup);
  const std::int64_t codes = kv_code_bytes(pass.d, by), of_word = 32 / code_bits(by);
  const auto part = [&](const std::byte* group, int depths) {
    CodeTile tile;
    tile.words = reinterpret_cast<const std::uint32_t*>(group);
    tile.scales = reinterpret_cast<const std::uint16_t*>(group + codes);
    tile.zeros = tile.scales + depths;
    tile.depths = depths;
    return tile;
  };
  CodeTile k = part(from.k, pass.d), v = part(from.v, kTileKeys);
  k.blocks = kTileKeys / kKeyBlock;
  k.row_words = kKeyBlock;
  k.block_words = pass.d / of_word * kKeyBlock;
  k.bytes = kv_group_k_bytes(pass.d, by);
  v.blocks = pass.d / kLanes;
  v.row_words = pass.d;
  v.block_words = kLanes;
  v.bytes = kv_group_v_bytes(pass.d, by);
  const AttentionKernels& kernels = *pass.kernels;
  (by == Quantisation::kInt4 ? kernels.int4_groups : kernels.int8_groups)(a, k, v);
}

// The tile at `start`, and if they are read where they lie those behind it, `full` in all.
void find_tiles(const AttentionPass& pass, std::int64_t head, std::int64_t start, std::int64_t full,
                const TileBuffers& buffers, TileArgs& a) {
  const std::int64_t bytes = tile_bytes(pass), offset = (start - pass.older) / kTileKeys * bytes;
  Tile tile{k_head(*pass.kv, head) + offset, v_head(*pass.kv, head) + offset};
  const bool whole = start + kTileKeys <= pass.length,
             prefetch = whole && !pass.kv->format.rotate_on_read;
  a.tiles = prefetch && full > 1 ? static_cast<int>(full) : 1;
  a.next_k = prefetch ? tile.k + bytes : nullptr;
  a.next_v = prefetch ? tile.v + bytes : nullptr;
  if (!whole) tile = partial_tile(pass, tile, start, buffers);
  if (pass.kv->format.rotate_on_read) {
    rotate_tile(pass, tile.k, start, pass.length, buffers.other);
    tile.k = buffers.other;
  }
  a.k = tile.k;
  a.v = tile.v;
}

// The tile of `a` as f32 in buffers.wide, which takes the place of what is read.
void widen_tile(const AttentionPass& pass, const TileBuffers& buffers, TileArgs& a) {
  float* k = buffers.wide;
  float* v = k + std::int64_t{kTileKeys} * pass.d;
  pass.kernels->widen(a.k, std::int64_t{kTileKeys} / kKeyBlock * pass.d, kKeyBlock, k, kKeyBlock);
  pass.kernels->widen(a.v, kTileKeys, pass.d, v, pass.d);
  a.k = reinterpret_cast<const std::byte*>(k);
  a.v = reinterpret_cast<const std::byte*>(v);
  a.next_k = a.next_v = nullptr;
}

}  // namespace

AttentionPass make_pass(Isa isa, TensorView q, const KvView& kv, const RopeView& rope,
                        TensorView out) {
  AttentionPass p;
  p.kv = &kv;
  p.kernels = &attention_kernels(isa, kv.format.type);
  p.wide_kernels = &attention_kernels(isa, DType::kF32);
  p.q = q.as<float>();
  p.out = out.as<float>();
  p.q_stride = q.stride[0];
  p.out_stride = out.stride[0];
  p.queries = q.shape[0];
  p.older = kv.older ? std::int64_t{*kv.older.used} * kKvGroup : 0;
  p.length = p.older + *kv.length;
  p.past = p.length - p.queries;
  p.group = static_cast<int>(q.shape[1]) / kv.kv_heads;
  p.d = kv.head_dim;
  if (kv.format.rotate_on_read) {
    p.cos = rope.cos.as<float>();
    p.sin = rope.sin.as<float>();
  }
  return p;
}

TileBuffers take_tile_buffers(Scratch& scratch, int d, std::int64_t rows) {
  const std::int64_t bytes = std::int64_t{kTileKeys} * d * 4;
  TileBuffers b;
  b.k = scratch.take<std::byte>(bytes);
  b.v = scratch.take<std::byte>(bytes);
  b.other = scratch.take<std::byte>(bytes);
  b.visible = scratch.take<int>(rows);
  return b;
}

void reset(const AttentionState& s, int d) {
  std::fill_n(s.o, s.rows * d, 0.0F);
  std::fill_n(s.m, s.rows, kMinusInfinity);
  std::fill_n(s.l, s.rows * kLanes, 0.0F);
}

void prepare_query(const AttentionPass& pass, std::int64_t head, std::int64_t row, std::byte* out) {
  const std::int64_t i = row / pass.group, h = head * pass.group + row % pass.group;
  const float* q = pass.q + i * pass.q_stride + h * pass.d;
  const auto scale =
      static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(pass.d)));
  if (pass.kernels->bf16_queries) {
    auto* to = reinterpret_cast<std::uint16_t*>(out);
    for (int j = 0; j < pass.d; ++j) to[j] = f32_to_bf16(q[j] * scale);
  } else {
    auto* to = reinterpret_cast<float*>(out);
    for (int j = 0; j < pass.d; ++j) to[j] = q[j] * scale;
  }
}

void run_tiles(const AttentionPass& pass, std::int64_t head, std::int64_t begin, std::int64_t end,
               const AttentionState& state, const TileBuffers& buffers, const MassOutput& mass) {
  const std::int64_t mass_row = mass.sums == nullptr ? 0 : kTileKeys / mass.unit;
  const std::int64_t horizon = pass.horizon(state.first_row);  // the shortest
  const bool widened = buffers.wide != nullptr && pass.kernels->widen != nullptr;
  const AttentionKernels& kernels = widened ? *pass.wide_kernels : *pass.kernels;
  TileArgs a;
  a.d = pass.d;
  a.mass_unit = mass.unit;
  for (std::int64_t start = begin; start < end; start += a.tiles * kTileKeys) {
    // Rows that see at least the first key of this tile: those from query start - past on.
    const std::int64_t skip =
        std::clamp<std::int64_t>((start - pass.past) * pass.group - state.first_row, 0, state.rows);
    const bool in_group = start < pass.older;
    const std::int64_t full = widened ? 1 : (std::min(horizon, end) - start) / kTileKeys;
    a.tiles = in_group ? static_cast<int>((std::min(end, pass.older) - start) / kTileKeys) : 1;
    if (!in_group) find_tiles(pass, head, start, full, buffers, a);
    if (widened) widen_tile(pass, buffers, a);
    a.rows = static_cast<int>(state.rows - skip);
    a.q = state.q + skip * pass.query_bytes();
    a.o = state.o + skip * pass.d;
    a.m = state.m + skip;
    a.l = state.l + skip * kLanes;
    a.visible = nullptr;
    if (!in_group && pass.horizon(state.first_row + skip) < start + kTileKeys) {
      for (std::int64_t r = skip; r < state.rows; ++r) {
        const std::int64_t seen = pass.horizon(state.first_row + r) - start;
        buffers.visible[r - skip] = static_cast<int>(std::min<std::int64_t>(seen, kTileKeys));
      }
      a.visible = buffers.visible;
    }
    if (mass.sums != nullptr) {
      float* sums = mass.sums + start / kTileKeys * state.rows * mass_row;
      float* scale = mass.scale + start / kTileKeys * state.rows;
      std::fill_n(sums, skip * mass_row, 0.0F);
      std::fill_n(scale, skip, kMinusInfinity);
      a.mass = sums + skip * mass_row;
      a.mass_m = scale + skip;
    }
    if (in_group) {
      run_groups(pass, head, start, a);
    } else {
      kernels.tiles(a);
    }
  }
}

void run_seen_tiles(const AttentionPass& pass, std::int64_t head, const SeenRows& seen,
                    std::int64_t begin, std::int64_t end, const AttentionState& state,
                    const TileBuffers& buffers) {
  TileArgs a;
  a.d = pass.d;
  a.rows = static_cast<int>(state.rows);
  a.q = state.q;
  a.o = state.o;
  a.m = state.m;
  a.l = state.l;
  a.v = buffers.v;
  a.k = pass.kv->format.rotate_on_read ? buffers.other : buffers.k;
  for (std::int64_t start = begin; start < end; start += kTileKeys) {
    const std::int64_t valid = std::min<std::int64_t>(end - start, kTileKeys);
    if (valid < kTileKeys) {
      std::memset(buffers.k, 0, static_cast<std::size_t>(tile_bytes(pass)));
      std::memset(buffers.v, 0, static_cast<std::size_t>(tile_bytes(pass)));
      std::fill_n(buffers.visible, state.rows, static_cast<int>(valid));
      a.visible = buffers.visible;
    }
    seen.for_each_run(start, start + valid,
                      [&](std::int64_t place, std::int64_t row, std::int64_t n) {
                        copy_head_rows(*pass.kv, head, row, buffers.k, buffers.v, place - start, n);
                      });
    if (pass.kv->format.rotate_on_read) rotate_tile(pass, buffers.k, start, end, buffers.other);
    pass.kernels->tiles(a);
  }
}

float sum_lanes(const float* l) {
  float sum = 0.0F;
  for (int i = 0; i < kLanes; ++i) sum += l[i];
  return sum;
}

Workers with_threads_for(const Workers& workers, std::int64_t work_bytes) {
  constexpr std::int64_t kWorthAThread = 64 << 10;  // about two microseconds of reading
  return with_threads(workers, work_bytes / kWorthAThread);
}

}  // namespace triforce::cpu
