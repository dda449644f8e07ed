// Exact attention of more packed rows than one warp has registers for, and over draft trees
// (kernels.h).
//
// Sums are those of attention.cu, where warp w of a block takes keys [16 w, 16 w + 16) of every
// tile of 64. Here several warps take the same keys, each for 32 rows of its own, and so a block
// takes the keys of fewer such warps, but of as many more tiles at a time:
//
//   rows     a block takes, of a tile    tiles at a time    blocks of a split
//   33-64    32 keys                     2                  2
//   65-128   16 keys                     4                  4
//
// Every key is read once for 128 rows. What a block sums up lies apart in device memory until
// combine_kernel adds it in the order of attention.cu, or attention_tree.cu goes on.
#include "kernels/attention_groups.cuh"
#include "kernels/attention_state.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

constexpr int kWarps = kAttentionWarps, kThreads = kAttentionThreads;
constexpr int kStages = 2;

// Of shared memory, in parts of 16 bytes, as in attention.cu.
template <class Rows, int kDim, int kRun>
constexpr int kStageParts = 2 * kTileParts<kDim>;
template <class T, int kBits, int kDim, int kRun>
constexpr int kStageParts<Codes<T, kBits>, kDim, kRun> =
    CodeStage<T, kDim, kBits, kRun>::kStageParts;

// A thread in its block, and the packed rows of its warp. Computed where it is needed: registers
// are for the state.
struct Place {
  int warp, lane;
  TF_DEVICE explicit Place(unsigned thread)
      : warp(static_cast<int>(thread / 32)), lane(static_cast<int>(thread % 32)) {}
  // The warp's first row of those of a launch.
  template <int kRowWarps>
  TF_DEVICE int first_row() const {
    return warp % kRowWarps * kAttentionRows;
  }
};

// Packed rows from `from_row` on, up to 32 kRowWarps of them. kRowWarps: warps that take the same
// keys. Rows: as in attention.cu. grid: (split x kRowWarps, KV head, sequence)
template <class Rows, int kDim, int kRowWarps, bool kRotate>
__global__ void __launch_bounds__(kThreads, 1)
    wide_split_kernel(Queries q, KvLanes lanes, Angles angles, std::int64_t split, float scale,
                      int from_row, Partials out) {
  using T = typename RowsOf<Rows>::Element;
  constexpr int kBits = RowsOf<Rows>::kBits;
  constexpr int kSlices = kWarps / kRowWarps, kRun = kSlices * kWarpKeys;
  constexpr int kStage = kStageParts<Rows, kDim, kRun>;
  // Compilers differ in which of two equal expressions leaves a register for everything.
  constexpr bool kSm120 = ptx::compiled_for<1200>();
  const int head = static_cast<int>(blockIdx.y), rows = q.tokens * q.group;
  const int split_index = static_cast<int>(blockIdx.x) / kRowWarps;
  const int first_slice = static_cast<int>(blockIdx.x) % kRowWarps * kSlices;
  const unsigned z = ptx::block_z();
  const int groups = groups_before<Rows>(lanes, z);
  const std::int64_t length = common_keys(q, lanes, z, whole_length<Rows>(lanes, z, groups));
  const std::int64_t begin = split_index * split;
  if (begin >= length) return;
  TF_SHARED(uint4, shared);
  const int there = static_cast<int>(length - begin < split ? length - begin : split);
  const auto tiles =  // computed here alone: what it is made of takes registers
      static_cast<int>(ptx::opaque(static_cast<unsigned>(ceil_div(there, kTileKeys))));
  const std::int64_t begin_again =
      kSm120 ? static_cast<int>(ptx::opaque(blockIdx.x)) / kRowWarps * split : begin;
  const std::int64_t from = begin_again + first_slice * kWarpKeys;
  const int seen =
      static_cast<int>((lanes.kv.parents == nullptr ? visible_keys(q, length, 0) : length) - from);
  // Tiles of the split that are groups; not positive: none.
  [[maybe_unused]] const int of_groups = groups - static_cast<int>(begin / kTileKeys);
  // Tiles before the split, computed where they are needed.
  [[maybe_unused]] const auto tiles_before = [&] {
    return static_cast<int>(ptx::opaque(blockIdx.x)) / kRowWarps * static_cast<int>(split) /
           kTileKeys;
  };
  [[maybe_unused]] const auto first_slice_here = [&] {
    return static_cast<int>(ptx::opaque(blockIdx.x)) % kRowWarps * kSlices;
  };
  // Of tiles from first_tile on those that are groups, or those of plain rows.
  [[maybe_unused]] const auto load_codes = [&](int first_tile) {
    if constexpr (kBits > 0) {
      uint4* const to = shared + first_tile / kRowWarps % kStages * kStage;
      TF_UNROLL_N(1)
      for (int i = 0; i < kRowWarps && first_tile + i < tiles && first_tile + i < of_groups; ++i) {
        CodeStage<T, kDim, kBits, kRun>::load(
            lanes, ptx::block_z(), static_cast<int>(ptx::opaque(blockIdx.y)),
            tiles_before() + first_tile + i, first_slice_here() * kWarpKeys, i, to);
      }
    }
  };
  const auto load_rows = [&](int first_tile, uint4* to) {
    const HeadRows at =
        head_rows<kDim>(lanes, ptx::block_z(), static_cast<int>(ptx::opaque(blockIdx.y)),
                        kBits == 0 ? from : first_slice_here() * kWarpKeys - of_groups * kTileKeys);
    const int left = kSm120 ? rows_left<kDim>(at.there) : at.there;
    const auto left_of = [&](int first) {
      return kSm120 ? left - first : rows_left<kDim>(left - first);
    };
    TF_UNROLL_N(1)
    for (int i = 0; i < kRowWarps && first_tile + i < tiles; ++i) {
      if (kBits > 0 && first_tile + i < of_groups) continue;
      const int first = (first_tile + i) * kTileKeys;
      uint4* const keys = to + i * kTileParts<kDim, kRun>;
      load_tile<kDim, kRun>(at.k + first * kDim, left_of(first), keys);
      load_tile<kDim, kRun>(at.v + first * kDim, left_of(first), keys + kTileParts<kDim>);
    }
  };
  const auto load = [&](int first_tile) {
    if constexpr (kBits > 0) {
      load_codes(first_tile);
    } else {
      load_rows(first_tile, shared + first_tile / kRowWarps % kStages * kStage);
    }
  };
  load(0);
  ptx::cp_async_commit();
  const Place here(threadIdx.x);
  WarpState<T, kDim, kAttentionRows / 8> state;
  state.start(lane_of(q, ptx::block_z()), head, from_row + here.first_row<kRowWarps>(), rows,
              here.lane);
  for (int t = 0; t < tiles; t += kRowWarps) {
    if (t + kRowWarps < tiles) load(t + kRowWarps);
    ptx::cp_async_commit();  // an empty group keeps the count
    [[maybe_unused]] const std::int64_t first = from + std::int64_t{t} * kTileKeys;
    [[maybe_unused]] Rotation<T, kDim, kTileKeys, kRun> rotation;
    if constexpr (kRotate) rotation.fetch(first, angles, kSm120 ? length : begin + there);
    ptx::cp_async_wait<1>();
    __syncthreads();
    uint4* tile = shared + t / kRowWarps % kStages * kStage;
    if constexpr (kBits > 0) {
      const uint4* const stage = tile;
      tile = shared + kStages * kStage;
      TF_UNROLL_N(1)
      for (int i = 0; i < kRowWarps && t + i < of_groups && t + i < tiles; ++i) {
        uint4* const of_run = tile + i * kTileParts<kDim, kRun>;
        CodeStage<T, kDim, kBits, kRun>::write_values(stage, i, of_run, of_run + kTileParts<kDim>);
      }
      if (t + kRowWarps > of_groups) {
        load_rows(t, tile);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
      }
      __syncthreads();
    }
    T* const keys = reinterpret_cast<T*>(tile);
    if constexpr (kRotate) {
      rotation.rotate(keys, first, angles, kSm120 ? length : begin + there);
      __syncthreads();
    }
    TF_UNROLL_N(1)
    for (int i = 0; i < kRowWarps && t + i < tiles; ++i) {
      const Place now(ptx::opaque(threadIdx.x));
      const int slice = now.warp / kRowWarps, first_row = from_row + now.first_row<kRowWarps>();
      if (first_row >= rows) break;
      const T* const of_tile = keys + i * kRun * kDim;
      state.add_tile(of_tile, of_tile + kTileKeys * kDim, first_row,
                     seen - (t + i) * kTileKeys - slice * kWarpKeys, slice, now.lane, scale);
    }
    if constexpr (kBits == 0) __syncthreads();  // the stage is loaded anew
  }
  const Place then(ptx::opaque(threadIdx.x));
  const int first_row = from_row + then.first_row<kRowWarps>();
  // The warp of attention.cu that this one stands for.
  const int slice = first_slice + then.warp / kRowWarps;
  const std::int64_t place = std::int64_t{ptx::block_z()} * gridDim.y + head;
  const std::int64_t unit =
      ((place * out.splits + split_index) * kWarps + slice) * rows + first_row;
  state.store(out.o + unit * kDim, out.stats + unit, rows - first_row, then.lane);
  if (out.sums == nullptr || std::int64_t{tiles} * kTileKeys == split) return;
  state.store_sums(out.sums + ((place * kWarps + slice) * rows + first_row) * kRowLanes,
                   rows - first_row, then.lane);
}

// grid: (kWarps packed rows, KV head, sequence)
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(Queries q, KvLanes lanes, std::int64_t split, Partials in, Combined to) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int rows = q.tokens * q.group, row = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (row >= rows) return;
  const std::int64_t length = lanes.kv.length[blockIdx.z] + rows_before(lanes, blockIdx.z);
  const auto splits = static_cast<int>((length + split - 1) / split);
  combine_row<T, kDim, kWarps>(q, in, row, rows, splits, lane, to);
}

}  // namespace

void attention_wide(const Queries& q, const KvLanes& lanes, const RopeView& rope,
                    std::int64_t split, const Partials& partials, const Combined& to,
                    cudaStream_t stream) {
  const int rows = q.tokens * q.group;
  const KvView& kv = lanes.kv;
  with_rows_and_groups_of(kv, [&](auto t, auto dim) {
    using Rows = decltype(t);
    constexpr int kDim = dim;
    const auto launch_splits = [&](auto row_warps) {
      constexpr int kRows = row_warps * kAttentionRows, kRun = kTileKeys / row_warps;
      constexpr int kBits = RowsOf<Rows>::kBits, kParts = kStages * kStageParts<Rows, kDim, kRun> +
                                                          (kBits > 0 ? 2 * kTileParts<kDim> : 0);
      auto* kernel = wide_split_kernel<Rows, kDim, row_warps, false>;
      if constexpr (kBits == 0) {
        if (kv.format.rotate_on_read) kernel = wide_split_kernel<Rows, kDim, row_warps, true>;
      }
      for (int from_row = 0; from_row < rows; from_row += kRows) {
        launch(kernel, dims(partials.splits * row_warps, kv.kv_heads, lanes.count), dims(kThreads),
               kParts * sizeof(uint4), stream, q, lanes, angles_of(rope), split, score_scale(kDim),
               from_row, partials);
      }
    };
    if (rows <= 2 * kAttentionRows) {
      launch_splits(std::integral_constant<int, 2>{});
    } else {
      launch_splits(std::integral_constant<int, 4>{});
    }
    if (kv.parents != nullptr) return combine_trees(q, lanes, rope, split, partials, to, stream);
    launch(combine_kernel<typename RowsOf<Rows>::Element, kDim>,
           dims(ceil_div(rows, kWarps), kv.kv_heads, lanes.count), dims(kThreads), 0, stream, q,
           lanes, split, partials, to);
  });
}

}  // namespace triforce::kernels
