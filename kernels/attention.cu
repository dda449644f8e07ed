#include "kernels/kernels.h"

#include <algorithm>

#include "kernels/arrival.cuh"
#include "kernels/attention_groups.cuh"
#include "kernels/attention_state.cuh"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

constexpr int kWarps = kAttentionWarps, kThreads = kAttentionThreads;
constexpr int kStages = 2;

// Of shared memory, in parts of 16 bytes: the stages, and the tile to which those of codes are
// written.
template <class Rows, int kDim>
constexpr int kStageParts = 2 * kTileParts<kDim>;
template <class T, int kBits, int kDim>
constexpr int kStageParts<Codes<T, kBits>, kDim> = CodeStage<T, kDim, kBits>::kStageParts;
template <class Rows, int kDim>
constexpr int kSharedParts = kStages* kStageParts<Rows, kDim> +
                             (RowsOf<Rows>::kBits > 0 ? 2 * kTileParts<kDim> : 0);

// The head's packed rows, each by a warp. A call, since inlined it takes registers from the loop
// over tiles.
template <class T, int kDim>
__device__ __noinline__ void combine_rows(Queries q, Partials in, int splits, Combined to) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int rows = q.tokens * q.group;
  for (int row = warp; row < rows; row += kWarps) {
    combine_row<T, kDim, 1>(q, in, row, rows, splits, lane, to);
  }
}

// Rows: T, or Codes<T, .> where the first tiles are groups. Of these one is under way while another
// is taken; tiles of the plain rows behind them, which are few, are waited for. grid: (split, KV
// head, sequence). The last block of a head combines its splits.
template <class Rows, int kDim, int kGroups, bool kRotate>
__global__ void __launch_bounds__(kThreads, 1)
    split_kernel(Queries q, KvLanes lanes, Angles angles, std::int64_t split, float scale,
                 Partials out, Combined result) {
  using T = typename RowsOf<Rows>::Element;
  constexpr int kBits = RowsOf<Rows>::kBits, kStage = kStageParts<Rows, kDim>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y), rows = q.tokens * q.group;
  ptx::wait_for_earlier_grids();
  ptx::let_next_grid_start();
  const unsigned z = ptx::block_z();
  const int groups = groups_before<Rows>(lanes, z);
  const std::int64_t length = whole_length<Rows>(lanes, z, groups);
  const std::int64_t begin = blockIdx.x * split,
                     end = length < begin + split ? length : begin + split;
  if (begin >= length) return;
  TF_SHARED(uint4, shared);
  const int tiles = static_cast<int>((end - begin + kTileKeys - 1) / kTileKeys);
  WarpState<T, kDim, kGroups> state;
  // Tiles of the split that are groups; not positive: none.
  [[maybe_unused]] const int of_groups = groups - static_cast<int>(begin / kTileKeys);
  const HeadRows at = head_rows<kDim>(lanes, ptx::block_z(), head, begin);
  // Of the split's keys, what the first token's rows see of those from the warp's first one on.
  const int seen = static_cast<int>(visible_keys(q, length, 0) - begin) - warp * kWarpKeys;
  const int left = rows_left<kDim>(at.there);
  const auto load = [&](int t) {
    uint4* const to = shared + t % kStages * kStage;
    const int first = t * kTileKeys;
    if constexpr (kBits == 0) {
      load_tile<kDim>(at.k + first * kDim, left - first, to);
      load_tile<kDim>(at.v + first * kDim, left - first, to + kTileParts<kDim>);
    } else if (t < of_groups) {
      const auto before = static_cast<int>(ptx::opaque(blockIdx.x) * split / kTileKeys);
      CodeStage<T, kDim, kBits>::load(
          lanes, ptx::block_z(), static_cast<int>(ptx::opaque(blockIdx.y)), before + t, 0, 0, to);
    }
  };
  load(0);
  ptx::cp_async_commit();
  state.start(lane_of(q, ptx::block_z()), head, 0, rows, lane);
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) load(t + 1);
    ptx::cp_async_commit();  // an empty group keeps the count
    [[maybe_unused]] const std::int64_t first = begin + std::int64_t{t} * kTileKeys;
    [[maybe_unused]] Rotation<T, kDim> rotation;
    if constexpr (kRotate) rotation.fetch(first, angles, length);
    ptx::cp_async_wait<1>();
    __syncthreads();
    uint4* tile = shared + t % kStages * kStage;
    if constexpr (kBits > 0) {
      const uint4* const stage = tile;
      tile = shared + kStages * kStage;
      if (t < of_groups) {
        CodeStage<T, kDim, kBits>::write_values(stage, 0, tile, tile + kTileParts<kDim>);
      } else {
        const int row = (t - of_groups) * kTileKeys;
        const HeadRows behind =
            head_rows<kDim>(lanes, ptx::block_z(), static_cast<int>(ptx::opaque(blockIdx.y)), row);
        const int there = rows_left<kDim>(behind.there);
        load_tile<kDim>(behind.k, there, tile);
        load_tile<kDim>(behind.v, there, tile + kTileParts<kDim>);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
      }
      __syncthreads();
    }
    T* const keys = reinterpret_cast<T*>(tile);
    if constexpr (kRotate) {
      rotation.rotate(keys, first, angles, length);
      __syncthreads();
    }
    const auto tile_lane = static_cast<int>(ptx::opaque(threadIdx.x) % 32);
    const int tile_warp =  // sm_120 has no register for it
        ptx::compiled_for<1200>() ? static_cast<int>(ptx::opaque(threadIdx.x) / 32) : warp;
    state.add_tile(keys, keys + kTileKeys * kDim, 0, seen - t * kTileKeys, tile_warp, tile_lane,
                   scale);
    // The stage is loaded anew, but for one of codes, from which all have gone on before.
    if (kBits == 0 || t + 1 == tiles) __syncthreads();
  }
  constexpr int kRows = kGroups * 8;
  float* const o = reinterpret_cast<float*>(shared);
  auto* const stats = reinterpret_cast<SoftmaxStats*>(o + kWarps * kRows * kDim);
  state.store(o + warp * kRows * kDim, stats + warp * kRows, kRows, lane);
  __syncthreads();
  const unsigned sequence = ptx::block_z();
  const std::int64_t place = std::int64_t{sequence} * gridDim.y + head;
  const std::int64_t unit = (place * out.splits + blockIdx.x) * rows;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kDim; i += kThreads) {
    const int row = i / kDim, j = i % kDim;
    if (row >= rows) continue;
    const MergedWarps<kWarps> merged([&](int w) { return stats[w * kRows + row]; });
    float sum = 0;
    TF_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      sum = fmaf(o[(w * kRows + row) * kDim + j], merged.factor[w], sum);
    }
    out.o[(unit + row) * kDim + j] = sum;
    if (j == 0) out.stats[unit + row] = {merged.m, merged.l};
  }
  const auto splits = static_cast<int>(
      (whole_length<Rows>(lanes, sequence, groups_before<Rows>(lanes, sequence)) + split - 1) /
      split);
  unsigned* const arrivals = out.arrivals + place;
  if (!arrives_last(arrivals, static_cast<unsigned>(splits), reinterpret_cast<unsigned*>(o)))
    return;
  combine_rows<T, kDim>(q, out, splits, result);
}

// Two blocks fit a multiprocessor; four waves keep the last one's idle share small.
std::int64_t max_splits(int multiprocessors, int kv_heads) {
  return std::max<std::int64_t>(1, std::int64_t{8} * multiprocessors / kv_heads);
}

// Where the parts of the workspace lie.
struct Workspace {
  std::int64_t splits, rows;  // rows: packed rows of a KV head
  bool wide;                  // the sums of each warp of a split are left
  std::int64_t o, stats, sums, totals, key_mass, bytes;

  Workspace(std::int64_t queries, int heads, int kv_heads, int head_dim, std::int64_t capacity,
            std::int64_t max_splits, bool mass, bool tree, int lanes)
      : splits(max_splits),
        rows(queries * (heads / kv_heads)),
        wide(tree || rows > kAttentionRows),
        o(0) {
    const std::int64_t units = lanes * kv_heads * splits * (wide ? kWarps : 1) * rows;
    stats = o + units * head_dim * 4;
    sums = stats + units * 8;
    totals = sums + (tree ? lanes * kv_heads * kWarps * rows * kRowLanes * 4 : 0);
    key_mass = totals + (mass ? lanes * kv_heads * rows * 8 : 0);
    bytes = key_mass + (mass ? kv_heads * capacity * 4 : 0);  // of one lane at a time
  }
};

template <class Rows, int kDim>
void run(const Queries& q, const KvLanes& lanes, const RopeView& rope, std::int64_t split,
         const Partials& partials, const Combined& to, cudaStream_t stream) {
  const int rows = q.tokens * q.group;
  with_count<kAttentionRows / 8>(ceil_div(rows, 8), [&](auto groups) {
    constexpr std::size_t kTiles = kSharedParts<Rows, kDim> * sizeof(uint4);
    constexpr std::size_t kStates = std::size_t{kWarps} * groups * 8 * (kDim * 4 + 8);
    auto* kernel = split_kernel<Rows, kDim, groups, false>;
    if constexpr (RowsOf<Rows>::kBits == 0) {
      if (lanes.kv.format.rotate_on_read) kernel = split_kernel<Rows, kDim, groups, true>;
    }
    launch_early(kernel, dims(partials.splits, lanes.kv.kv_heads, lanes.count), dims(kThreads),
                 std::max(kTiles, kStates), stream, q, lanes, angles_of(rope), split,
                 score_scale(kDim), partials, to);
  });
}

}  // namespace

std::int64_t split_tokens(int multiprocessors, int layer_heads, std::int64_t capacity) {
  // A block's start and the addition of its split take as long as some tiles: fewer than these only
  // where they would leave multiprocessors without a block. Of 4,232 rows of 32 heads on an H200,
  // 1, 7 and 16 queries take 21.5, 24.4 and 30.4 us in splits of 6 tiles, 24.9, 31.1 and 47.3 in
  // those of 2.
  constexpr std::int64_t kEnough = 6, kFewest = 2;
  const std::int64_t tiles = ceil_div(capacity, kTileKeys);
  const std::int64_t of_four_waves = ceil_div(tiles, max_splits(multiprocessors, layer_heads)),
                     of_one_wave = ceil_div(tiles * layer_heads, 2 * multiprocessors);
  return std::max({of_four_waves, std::min(of_one_wave, kEnough), kFewest}) * kTileKeys;
}

std::int64_t attention_bytes(std::int64_t queries, int heads, int kv_heads, int head_dim,
                             std::int64_t capacity, std::int64_t split, bool mass, bool tree,
                             int lanes) {
  return Workspace(queries, heads, kv_heads, head_dim, capacity, ceil_div(capacity, split), mass,
                   tree, lanes)
      .bytes;
}

std::int64_t max_attention_bytes(int multiprocessors, std::int64_t queries, int heads, int kv_heads,
                                 int head_dim, std::int64_t capacity, bool mass) {
  const std::int64_t splits = max_splits(multiprocessors, kv_heads);
  return Workspace(queries, heads, kv_heads, head_dim, capacity, splits, mass, true, 1).bytes;
}

void attention(const TensorView& q, const KvLanes& lanes, const RopeView& rope,
               const TensorView& out, std::span<const TensorView> mass, int chunk,
               std::int64_t split, std::span<std::byte> workspace, unsigned* arrivals,
               cudaStream_t stream) {
  const KvView& kv = lanes.kv;
  const Queries queries = queries_of(q, lanes);
  TF_CHECK(split > 0 && split % kTileKeys == 0, "attention: splits of {} tokens", split);
  const bool with_mass = !mass.empty(), tree = kv.parents != nullptr;
  const Workspace w(queries.tokens, static_cast<int>(q.shape[1]), kv.kv_heads, kv.head_dim,
                    whole_capacity(kv), ceil_div(whole_capacity(kv), split), with_mass, tree,
                    lanes.count);
  const auto there = static_cast<std::int64_t>(workspace.size());
  TF_CHECK(w.bytes <= there, "attention: {} bytes of workspace, {} there", w.bytes, there);
  std::byte* const memory = workspace.data();
  const Partials partials{reinterpret_cast<float*>(memory + w.o),
                          reinterpret_cast<SoftmaxStats*>(memory + w.stats), w.splits, arrivals,
                          tree ? reinterpret_cast<float*>(memory + w.sums) : nullptr};
  auto* const totals = with_mass ? reinterpret_cast<SoftmaxStats*>(memory + w.totals) : nullptr;
  const Combined to{out.data, out.stride[0], totals};
  if (w.wide) {
    attention_wide(queries, lanes, rope, split, partials, to, stream);
  } else {
    with_rows_and_groups_of(kv, [&](auto t, auto dim) {
      run<decltype(t), dim>(queries, lanes, rope, split, partials, to, stream);
    });
  }
  if (!with_mass) return;
  auto* const key_mass = reinterpret_cast<float*>(memory + w.key_mass);
  const std::int64_t at_once = (there - w.key_mass) / (w.bytes - w.key_mass);
  for (int first = 0; first < lanes.count;) {
    const auto some =
        mass.subspan(static_cast<std::size_t>(first))
            .first(static_cast<std::size_t>(std::min<std::int64_t>(at_once, lanes.count - first)));
    attention_mass(queries, lanes, rope, totals, key_mass, first, some, chunk, stream);
    first += static_cast<int>(some.size());
  }
}

}  // namespace triforce::kernels
