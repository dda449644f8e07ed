// attention_prefill() for compute capability 9.0 and heads of 128 dimensions, after
// FlashAttention-3 (arXiv 2407.08608). One warpgroup of a block does nothing but fetch tiles of
// keys and values; the others multiply operands that lie in shared memory. While the scores of a
// tile become weights, the products of the tile before it with its values are under way.
//
// Rows of a cache lie in memory as these products take them (kv_layout.cuh). A tile in shared
// memory is two panels [kKeys][64 dimensions], whose rows of 128 bytes are swizzled.
#include "kernels/attention_rows.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/ptx_sm90.cuh"
#include "triforce/format.h"

namespace triforce::kernels {
namespace {

constexpr int kDim = 128, kPanels = 2, kPanelDims = kDim / kPanels;
constexpr int kGroupThreads = 128, kGroupRows = 64;  // of a warpgroup
constexpr int kConsumers = 2;                        // warpgroups
constexpr int kBlockRows = kConsumers * kGroupRows, kThreads = (kConsumers + 1) * kGroupThreads;
constexpr int kKeys = 128, kStages = 2;
// Bytes of shared memory.
constexpr int kRowBytes = 128, kSwizzleBytes = 8 * kRowBytes;  // of a panel; of its pattern
constexpr int kKeyPanel = kKeys * kRowBytes, kTile = kPanels * kKeyPanel;
constexpr int kQueryPanel = kBlockRows * kRowBytes, kQueryTile = kPanels * kQueryPanel;
constexpr int kBarrier = 8, kBarriers = 4 * kStages * kBarrier;
constexpr int kSharedBytes = kSwizzleBytes + kQueryTile + 2 * kStages * kTile + kBarriers;
static_assert(kPanelDims * 2 == kRowBytes && kDim == 128 && kKeys == 128);
// Registers of a thread: those that fetch leave some to those that multiply.
constexpr int kFetchRegisters = 24, kProductRegisters = 240;
static_assert(kGroupThreads * (kFetchRegisters + kConsumers * kProductRegisters) <= 65536);

// The block's shared memory, by addresses.
struct Shared {
  std::uint32_t queries, keys, values, barriers;

  TF_DEVICE explicit Shared(const void* arena) {
    // The pattern is that of addresses.
    queries = (ptx::shared_address(arena) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
    keys = queries + kQueryTile;
    values = keys + kStages * kTile;
    barriers = values + kStages * kTile;
  }
  TF_DEVICE std::uint32_t key_tile(int stage) const { return keys + stage * kTile; }
  TF_DEVICE std::uint32_t value_tile(int stage) const { return values + stage * kTile; }
  // Of a stage: keys and values have come; all consumers are done with them.
  TF_DEVICE std::uint32_t keys_here(int stage) const { return barrier(0, stage); }
  TF_DEVICE std::uint32_t values_here(int stage) const { return barrier(1, stage); }
  TF_DEVICE std::uint32_t keys_done(int stage) const { return barrier(2, stage); }
  TF_DEVICE std::uint32_t values_done(int stage) const { return barrier(3, stage); }

 private:
  TF_DEVICE std::uint32_t barrier(int kind, int stage) const {
    return barriers + (kind * kStages + stage) * kBarrier;
  }
};

// Tile t is the (t / kStages)th of its stage.
TF_DEVICE int stage_of(int t) { return t % kStages; }
TF_DEVICE int phase_of(int t) { return t / kStages % 2; }

// Copies queries [first, first + kBlockRows) of a head to panels as those of keys; zeros for those
// that are not there.
TF_DEVICE void load_queries(const Queries& q, int head, int first, unsigned char* to) {
  constexpr int kParts = kDim / kPartElements, kPanelParts = kParts / kPanels;
  const auto* const from = static_cast<const std::uint16_t*>(q.data) + head * q.head_stride;
  for (int part = static_cast<int>(threadIdx.x); part < kBlockRows * kParts; part += kThreads) {
    const int row = part / kParts, c = part % kParts, in_panel = c % kPanelParts ^ row % 8;
    const bool there = first + row < q.tokens;
    const std::int64_t at = there ? (first + row) * q.token_stride + c * kPartElements : 0;
    ptx::cp_async16(to + c / kPanelParts * kQueryPanel + row * kRowBytes + in_panel * 16, from + at,
                    there);
  }
}

// One thread fetches all tiles.
TF_DEVICE void fetch_tiles(const Shared& shared, const CUtensorMap& keys, const CUtensorMap& values,
                           int kv_head, int tiles) {
  for (int t = 0; t < tiles; ++t) {
    const int s = stage_of(t), before = phase_of(t) ^ 1;
    if (t >= kStages) ptx::wait(shared.keys_done(s), before);
    ptx::arrive_expecting(shared.keys_here(s), kTile);
    ptx::copy_box(shared.key_tile(s), keys, 0, t * kKeys, 0, kv_head, shared.keys_here(s));
    if (t >= kStages) ptx::wait(shared.values_done(s), before);
    ptx::arrive_expecting(shared.values_here(s), kTile);
    ptx::copy_box(shared.value_tile(s), values, 0, t * kKeys, 0, kv_head, shared.values_here(s));
  }
}

// A consumer's state: a warp's 16 of the 64 queries.
template <class T>
struct GroupState {
  ptx::Sums o;
  float m[2], l[2];                      // rows group and group + 8
  std::uint32_t weights[kKeys / 16][4];  // of the tile before

  TF_DEVICE void start() {
    TF_UNROLL
    for (int n = 0; n < kDim / 8; ++n) {
      TF_UNROLL
      for (int i = 0; i < 4; ++i) o[n][i] = 0;
    }
    TF_UNROLL
    for (int i = 0; i < 2; ++i) {
      m[i] = -INFINITY;
      l[i] = 0;
    }
  }

  // S = Q K^T, a group of products; of the 64 queries at `queries`.
  TF_DEVICE static void scores(std::uint32_t queries, std::uint32_t keys, ptx::Sums& s) {
    constexpr int kSteps = kPanelDims / 16;  // of a panel
    TF_UNROLL
    for (int c = 0; c < kDim / 16; ++c) {
      const int panel = c / kSteps, in_row = c % kSteps * 32;
      ptx::products<T>(
          s, ptx::swizzled_matrix(queries + panel * kQueryPanel + in_row, 16, kSwizzleBytes),
          ptx::swizzled_matrix(keys + panel * kKeyPanel + in_row, 16, kSwizzleBytes), c > 0);
    }
    ptx::products_commit();
  }
  // O += P V, a group of products.
  TF_DEVICE void add_values(std::uint32_t values) {
    TF_UNROLL
    for (int j = 0; j < kKeys / 16; ++j) {
      ptx::products<T>(o, weights[j],
                       ptx::swizzled_matrix(values + j * 16 * kRowBytes, kKeyPanel, kSwizzleBytes));
    }
    ptx::products_commit();
  }

  // Scores to weights; factors of what was summed before.
  TF_DEVICE void softmax(ptx::Sums& s, std::int64_t visible, int lane, float scale,
                         float (&factor)[2]) {
    if (visible < kKeys) hide_keys(s, visible, lane);
    TF_UNROLL
    for (int i = 0; i < 2; ++i) factor[i] = to_weights(s, i, scale, m[i], l[i]);
  }
  TF_DEVICE void take(const ptx::Sums& s) {
    TF_UNROLL
    for (int j = 0; j < kKeys / 16; ++j) weights_operand<T>(s, j, weights[j]);
  }
  TF_DEVICE void rescale(const float (&factor)[2]) {
    // Maxima soon stop growing.
    if (!__any_sync(0xffffffffU, factor[0] != 1.0F || factor[1] != 1.0F ? 1 : 0)) return;
    TF_UNROLL
    for (int n = 0; n < kDim / 8; ++n) {
      TF_UNROLL
      for (int i = 0; i < 4; ++i) o[n][i] *= factor[i / 2];
    }
  }
};

// Attention of one warpgroup over all tiles. visible: keys that the warp's first query may see.
template <class T>
TF_DEVICE void consume_tiles(const Shared& shared, std::uint32_t queries, int tiles,
                             std::int64_t visible, int lane, float scale, GroupState<T>& state) {
  const bool speaks = threadIdx.x % kGroupThreads == 0;  // for its warpgroup
  float factor[2];
  state.start();
  ptx::wait(shared.keys_here(0), 0);
  {
    ptx::Sums s;
    ptx::products_fence();
    state.scores(queries, shared.key_tile(0), s);
    ptx::products_wait<0>(s);
    if (speaks) ptx::arrive(shared.keys_done(0));
    state.softmax(s, visible, lane, scale, factor);
    state.take(s);
  }
  for (int t = 0; t + 1 < tiles; ++t) {
    const int now = stage_of(t), next = stage_of(t + 1);
    ptx::Sums s;
    ptx::wait(shared.keys_here(next), phase_of(t + 1));
    ptx::products_fence();
    state.scores(queries, shared.key_tile(next), s);
    ptx::wait(shared.values_here(now), phase_of(t));
    ptx::products_fence();
    state.add_values(shared.value_tile(now));
    ptx::products_wait<1>(s);
    if (speaks) ptx::arrive(shared.keys_done(next));
    state.softmax(s, visible - std::int64_t{t + 1} * kKeys, lane, scale, factor);
    ptx::products_wait<0>(state.o);
    if (speaks) ptx::arrive(shared.values_done(now));
    state.rescale(factor);
    state.take(s);
  }
  const int last = tiles - 1;
  ptx::wait(shared.values_here(stage_of(last)), phase_of(last));
  ptx::products_fence();
  state.add_values(shared.value_tile(stage_of(last)));
  ptx::products_wait<0>(state.o);
}

// grid: (tile of queries, the last first; query head)
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    prefill_wgmma_kernel(const __grid_constant__ CUtensorMap keys,
                         const __grid_constant__ CUtensorMap values, Queries q,
                         const std::int32_t* cache_length, float scale, T* out,
                         std::int64_t out_stride) {
  TF_SHARED(unsigned char, arena);
  const Shared shared(arena);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int head = static_cast<int>(blockIdx.y);
  const int first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kBlockRows;
  const std::int64_t length = *cache_length, before = length - q.tokens;
  const std::int64_t end = min(before + first_row + kBlockRows, length);
  const auto tiles = static_cast<int>((end + kKeys - 1) / kKeys);
  if (thread == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::init_barrier(shared.keys_here(s), 1);
      ptx::init_barrier(shared.values_here(s), 1);
      ptx::init_barrier(shared.keys_done(s), kConsumers);
      ptx::init_barrier(shared.values_done(s), kConsumers);
    }
    ptx::publish_barriers();
  }
  load_queries(q, head, first_row, arena + (shared.queries - ptx::shared_address(arena)));
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  ptx::fence_async_proxy();
  __syncthreads();
  if (thread < kGroupThreads) {
    ptx::leave_registers<kFetchRegisters>();
    if (thread == 0) fetch_tiles(shared, keys, values, head / q.group, tiles);
    return;
  }
  ptx::take_registers<kProductRegisters>();
  // The warp's first row of the queries.
  const int row = first_row + (thread - kGroupThreads) / 32 * 16;
  const int group = thread / kGroupThreads - 1;
  GroupState<T> state;
  consume_tiles(shared, shared.queries + group * kGroupRows * kRowBytes, tiles, before + row + 1,
                lane, scale, state);
  store_rows(state.o, state.l, out + row * out_stride + std::int64_t{head} * kDim, out_stride,
             q.tokens - row, lane);
}

// cuTensorMapEncodeTiled() of the driver, whose library the program does not name.
auto* tensor_map_encoder() {
  using Encode =
      CUresult(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
               const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
               CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static Encode* const encode = [] {
    constexpr const char* kName = "cuTensorMapEncodeTiled";
    void* address = nullptr;
    cudaDriverEntryPointQueryResult answer{};
#if CUDART_VERSION >= 12050
    constexpr unsigned kSince = 12000;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(kName, &address, kSince, cudaEnableDefault, &answer);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(kName, &address, cudaEnableDefault, &answer);
#endif
    if (error != cudaSuccess || answer != cudaDriverEntryPointSuccess || address == nullptr) {
      cudaGetLastError();  // it is reported here
      throw Error(
          ExitCode::kDevice, "TensorMap",
          fmt::format("the driver has no {}: {} ({}), answer {}", kName, cudaGetErrorName(error),
                      cudaGetErrorString(error), static_cast<int>(answer)));
    }
    return reinterpret_cast<Encode*>(address);
  }();
  return encode;
}

// Keys or values of a cache as a tensor of elements [head][panel][row][kPanelDims], of which a tile
// is a box.
CUtensorMap tensor_of(const KvView& kv, void* rows) {
  constexpr int kRank = 4;
  constexpr cuuint64_t kElement = 2, kRow = kDim * kElement;  // bytes
  const cuuint64_t dims[kRank] = {kPanelDims, static_cast<cuuint64_t>(kv.capacity), kPanels,
                                  static_cast<cuuint64_t>(kv.kv_heads)};
  const cuuint64_t strides[kRank - 1] = {kRow, kPanelDims * kElement,
                                         static_cast<cuuint64_t>(kv.head_stride) * kElement};
  const cuuint32_t box[kRank] = {kPanelDims, kKeys, kPanels, 1}, every[kRank] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult error =
      tensor_map_encoder()(&map,
                           kv.format.type == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                         : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                           kRank, rows, dims, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                           CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != CUDA_SUCCESS) {
    throw Error(
        ExitCode::kDevice, "TensorMap",
        fmt::format("cuTensorMapEncodeTiled of {} heads of {} rows, {} elements apart, at "
                    "{} failed with CUresult {}",
                    kv.kv_heads, kv.capacity, kv.head_stride, rows, static_cast<int>(error)));
  }
  return map;
}

}  // namespace

bool has_prefill_wgmma(const KvView& kv) {
  return compute_capability() == 90 && kv.head_dim == kDim && !kv.format.rotate_on_read;
}

void attention_prefill_wgmma(const TensorView& q, const KvView& kv, const TensorView& out,
                             cudaStream_t stream) {
  const CUtensorMap keys = tensor_of(kv, kv.k), values = tensor_of(kv, kv.v);
  with_half(kv.format.type, [&](auto t) {
    using T = decltype(t);
    launch(prefill_wgmma_kernel<T>, dims(ceil_div(q.shape[0], kBlockRows), q.shape[1]),
           dims(kThreads), kSharedBytes, stream, keys, values, queries_of(q, kv), kv.length,
           score_scale(kv.head_dim), static_cast<T*>(out.data), out.stride[0]);
  });
}

}  // namespace triforce::kernels
