// The end of exact attention over draft trees (kernels.h), whose branches see keys of their own.
//
// attention_wide.cu has taken the keys before common_keys(). For each query the others are gathered
// in tiles in which a key has the place that it has in the plain sequence. So every sum is made of
// the same numbers in the same order as there.
#include "kernels/attention_groups.cuh"
#include "kernels/attention_state.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

constexpr int kWarps = kAttentionWarps, kThreads = kAttentionThreads;
constexpr int kColumns = 8;  // packed rows of a block: the columns of one product

// Rows of a draft tree by which a branch comes to one of them, in shared memory.
struct Branch {
  std::int32_t parents[kMaxTreeRows];
  std::int32_t rows[kMaxTreeRows];  // from `first` on
  int first;

  // By all threads of a block; node: a row of the tree, or negative.
  TF_DEVICE void find(const std::int32_t* parents_of_rows, int tree_rows, int node) {
    for (int i = static_cast<int>(threadIdx.x); i < tree_rows; i += kThreads) {
      parents[i] = parents_of_rows[i];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int at = kMaxTreeRows;
      for (int i = node; i >= 0; i = parents[i]) rows[--at] = i;
      first = at;
    }
    __syncthreads();
  }
  TF_DEVICE int count() const { return kMaxTreeRows - first; }
};

// What a query sees: rows [0, before) at their places, of which the first `older` are in groups,
// then those of its branch.
struct Seen {
  const Branch* branch;
  std::int64_t before, tree;  // tree: the first row of the tree
  std::int64_t older;

  TF_DEVICE std::int64_t count() const { return before + branch->count(); }
  TF_DEVICE std::int64_t row_at(std::int64_t place) const {
    return place < before ? place - older
                          : tree + branch->rows[branch->first + static_cast<int>(place - before)];
  }
};

// Keys and values, none of groups, of places [start, start + kTileKeys) as load_tile() leaves plain
// ones; zeros for places that are not there. start is a multiple of kTileKeys.
template <int kDim>
TF_DEVICE void gather_tile(const HeadRows& from, const Seen& seen, std::int64_t start, uint4* to) {
  constexpr int kParts = kDim / kPartElements, kRowsAtOnce = kThreads / kParts;
  const int thread = static_cast<int>(threadIdx.x), first = thread / kParts;
  const std::int64_t end = seen.count();
  TF_UNROLL
  for (int i = 0; i < kTileKeys; i += kRowsAtOnce) {
    const bool there = start + first + i < end;
    const std::int64_t row = there ? seen.row_at(start + first + i) : 0;
    const std::int64_t at = kv_part(row, (thread % kParts) ^ ((first + i) % 8), kDim);
    uint4* const part = to + thread + i * kParts;
    ptx::cp_async16(part, from.k + at, there);
    ptx::cp_async16(part + kTileParts<kDim>, from.v + at, there);
  }
}

// grid: (kColumns packed rows of a token, KV head, sequence)
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, 4)  // others compute while one waits for its keys
    tree_kernel(Queries q, KvLanes lanes, Angles angles, std::int64_t split, float scale,
                Partials partials, Combined to) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y), rows = q.tokens * q.group;
  const int parts = (q.group + kColumns - 1) / kColumns;
  const int token = static_cast<int>(blockIdx.x) / parts;
  const int first = static_cast<int>(blockIdx.x) % parts * kColumns;  // of the token's rows
  const unsigned sequence = blockIdx.z;
  if (token < q.tokens - new_rows(q, lanes, sequence)) return;
  const int row = token * q.group + first, there = q.group - first;
  TF_SHARED(uint4, shared);
  auto* const branch = reinterpret_cast<Branch*>(shared + 2 * kTileParts<kDim>);
  const std::int64_t length = lanes.kv.length[sequence], tree = length - lanes.kv.tree_rows;
  const std::int64_t older = rows_before(lanes, sequence);
  const std::int64_t own = length - q.tokens + token;
  branch->find(lanes.kv.parents + std::int64_t{sequence} * lanes.kv.tree_rows, lanes.kv.tree_rows,
               static_cast<int>(own < tree ? -1 : own - tree));
  const Seen seen{branch, older + (own < tree ? own + 1 : tree), tree, older};
  const std::int64_t end = seen.count(), common = common_keys(q, lanes, sequence, older + length);

  const std::int64_t place = std::int64_t{sequence} * gridDim.y + head;
  auto split_index = static_cast<int>(common / split);
  // Of the warp's sums of a split.
  const auto unit = [&] {
    return ((place * partials.splits + split_index) * kWarps + warp) * rows + row;
  };
  WarpState<T, kDim, 1> state;
  state.start(lane_of(q, sequence), head, row, row + there, lane);
  if (split_index * split < common) {
    state.load(partials.o + unit() * kDim, partials.stats + unit(),
               partials.sums + ((place * kWarps + warp) * rows + row) * kRowLanes, there, lane);
  }
  const HeadRows at = head_rows<kDim>(lanes, sequence, head, 0);
  T* const keys = reinterpret_cast<T*>(shared);
  for (std::int64_t start = common;; start += kTileKeys) {
    gather_tile<kDim>(at, seen, start, shared);
    ptx::cp_async_commit();
    Rotation<T, kDim> rotation;
    if (lanes.kv.format.rotate_on_read) rotation.fetch(start, angles, end);
    ptx::cp_async_wait<0>();
    __syncthreads();
    if (lanes.kv.format.rotate_on_read) {
      rotation.rotate(keys, start, angles, end);
      __syncthreads();
    }
    const std::int64_t left = end - start;
    state.add_tile(keys, keys + kTileKeys * kDim, first,
                   static_cast<int>(left < kTileKeys ? left : kTileKeys) - warp * kWarpKeys, warp,
                   lane, scale);
    __syncthreads();  // the tile is gathered anew
    const bool last = left <= kTileKeys;
    if (!last && start + kTileKeys < (split_index + 1) * split) continue;
    state.store(partials.o + unit() * kDim, partials.stats + unit(), there, lane);
    if (last) break;
    ++split_index;
    state.clear();
  }
  __syncthreads();
  const int splits = split_index + 1;
  for (int i = warp; i < kColumns && i < there; i += kWarps) {
    combine_row<T, kDim, kWarps>(q, partials, row + i, rows, splits, lane, to);
  }
}

}  // namespace

void combine_trees(const Queries& q, const KvLanes& lanes, const RopeView& rope, std::int64_t split,
                   const Partials& partials, const Combined& to, cudaStream_t stream) {
  const KvView& kv = lanes.kv;
  with_rows_of(kv, [&](auto t, auto dim) {
    constexpr int kDim = dim;
    launch(tree_kernel<decltype(t), kDim>,
           dims(std::int64_t{q.tokens} * ceil_div(q.group, kColumns), kv.kv_heads, lanes.count),
           dims(kThreads), 2 * kTileParts<kDim> * sizeof(uint4) + sizeof(Branch), stream, q, lanes,
           angles_of(rope), split, score_scale(kDim), partials, to);
  });
}

}  // namespace triforce::kernels
