#include "kernels/kernels.h"

#include "kernels/attention_rows.cuh"
#include "kernels/attention_tile.cuh"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

constexpr int kStages = 2;
// Keys of a tile, and of a step: as many as registers hold scores of beside the sums. With the
// queries, two tiles of 32 keys of 128 dimensions leave room for a second block on a
// multiprocessor of sm_80, as registers do.
template <int kDim>
constexpr int kStepKeys = kDim > 64 ? 32 : 64;
constexpr int kRowTiles = 2;  // of 16 queries, a warp: operands of keys and values serve both
constexpr int kWarpRows = kRowTiles * 16, kBlockRows = kAttentionWarps * kWarpRows;

// Copies queries [first, first + kBlockRows) of a head to shared memory, parts placed as in kv
// rows; zeros for those that are not there.
template <int kDim>
TF_DEVICE void load_query_tile(const Queries& q, int head, int first, uint4* to) {
  constexpr int kParts = kDim / kPartElements;
  const auto* const from = static_cast<const std::uint16_t*>(q.data) + head * q.head_stride;
  TF_UNROLL
  for (int i = 0; i < kBlockRows * kParts / kAttentionThreads; ++i) {
    const int part = i * kAttentionThreads + static_cast<int>(threadIdx.x);
    const int row = part / kParts, c = part % kParts;
    const bool there = first + row < q.tokens;
    const std::int64_t at = there ? (first + row) * q.token_stride + c * kPartElements : 0;
    ptx::cp_async16(to + row * kParts + (c ^ row % 8), from + at, there);
  }
}

// One warp's state: 32 queries. S = Q K^T and O += P V.
template <class T, int kDim>
struct WarpState {
  static constexpr int kKeys = kStepKeys<kDim>, kKeyTiles = kKeys / 8, kDimTiles = kDim / 8;
  float o[kRowTiles][kDimTiles][4];
  float m[kRowTiles][2], l[kRowTiles][2];  // rows group and group + 8

  TF_DEVICE void start() {
    TF_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      TF_UNROLL
      for (int n = 0; n < kDimTiles; ++n) {
        TF_UNROLL
        for (int i = 0; i < 4; ++i) o[r][n][i] = 0;
      }
      TF_UNROLL
      for (int i = 0; i < 2; ++i) {
        m[r][i] = -INFINITY;
        l[r][i] = 0;
      }
    }
  }

  // visible: keys of these kKeys that the warp's first row may see; each next row one more.
  TF_DEVICE void add_keys(const T* queries, const T* keys, const T* values, std::int64_t visible,
                          int lane, float scale) {
    float score[kRowTiles][kKeyTiles][4];
    scores(queries, keys, lane, score);
    TF_UNROLL
    for (int r = 0; r < kRowTiles; ++r) softmax(score[r], r, visible, lane, scale);
    const int row = lane % 16, side = lane / 16;
    TF_UNROLL
    for (int j = 0; j < kKeys / 16; ++j) {
      std::uint32_t p[kRowTiles][4];
      TF_UNROLL
      for (int r = 0; r < kRowTiles; ++r) weights_operand<T>(score[r], j, p[r]);
      TF_UNROLL
      for (int n = 0; n < kDimTiles; n += 2) {
        std::uint32_t v[4];
        ptx::ldmatrix_x4<true>(v, values + kv_part(j * 16 + row, n + side, kDim));
        const std::uint32_t low[2] = {v[0], v[1]}, high[2] = {v[2], v[3]};
        TF_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          ptx::mma<T>(o[r][n], p[r], low);
          ptx::mma<T>(o[r][n + 1], p[r], high);
        }
      }
    }
  }

  // O / l to the first `rows` of kWarpRows rows of `out`.
  TF_DEVICE void store(T* out, std::int64_t stride, int rows, int lane) const {
    TF_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      store_rows(o[r], l[r], out + r * 16 * stride, stride, rows - r * 16, lane);
    }
  }

 private:
  TF_DEVICE void scores(const T* queries, const T* keys, int lane,
                        float (&score)[kRowTiles][kKeyTiles][4]) const {
    TF_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      TF_UNROLL
      for (int n = 0; n < kKeyTiles; ++n) {
        TF_UNROLL
        for (int i = 0; i < 4; ++i) score[r][n][i] = 0;
      }
    }
    TF_UNROLL
    for (int s = 0; s < kDim / 16; ++s) {
      std::uint32_t a[kRowTiles][4];
      TF_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        ptx::ldmatrix_x4(a[r], queries + kv_part(r * 16 + lane % 16, s * 2 + lane / 16, kDim));
      }
      TF_UNROLL
      for (int n = 0; n < kKeyTiles; n += 2) {
        std::uint32_t k[4];
        const int key = n * 8 + lane / 16 * 8 + lane % 8;
        ptx::ldmatrix_x4(k, keys + kv_part(key, s * 2 + lane / 8 % 2, kDim));
        const std::uint32_t low[2] = {k[0], k[1]}, high[2] = {k[2], k[3]};
        TF_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          ptx::mma<T>(score[r][n], a[r], low);
          ptx::mma<T>(score[r][n + 1], a[r], high);
        }
      }
    }
  }

  // Scores to weights; what was summed before is brought to the new maximum.
  TF_DEVICE void softmax(float (&x)[kKeyTiles][4], int r, std::int64_t visible, int lane,
                         float scale) {
    if (visible < kKeys) hide_keys(x, visible + r * 16, lane);
    TF_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float factor = to_weights(x, i, scale, m[r][i], l[r][i]);
      // Maxima soon stop growing.
      if (!__any_sync(0xffffffffU, factor != 1.0F ? 1 : 0)) continue;
      TF_UNROLL
      for (int n = 0; n < kDimTiles; ++n) {
        o[r][n][2 * i] *= factor;
        o[r][n][2 * i + 1] *= factor;
      }
    }
  }
};

// grid: (tile of queries, the last first; query head)
template <class T, int kDim, bool kRotate>
__global__ void __launch_bounds__(kAttentionThreads)
    prefill_kernel(Queries q, KvView kv, Angles angles, float scale, T* out,
                   std::int64_t out_stride) {
  using State = WarpState<T, kDim>;
  constexpr int kKeys = State::kKeys, kParts = kTileParts<kDim, kKeys>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y), kv_head = head / q.group;
  const int first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kBlockRows;
  const std::int64_t length = *kv.length, before = length - q.tokens;
  const std::int64_t end = min(before + first_row + kBlockRows, length);
  const auto tiles = static_cast<int>((end + kKeys - 1) / kKeys);
  TF_SHARED(uint4, query_tile);
  uint4* const stages = query_tile + kBlockRows * kDim / kPartElements;
  const auto load = [&](int t) {
    uint4* const to = stages + t % kStages * 2 * kParts;
    const HeadRows at = head_rows<kDim>(kv, kv_head, std::int64_t{t} * kKeys);
    load_tile<kDim, kKeys>(at.k, rows_left<kDim>(at.there), to);
    load_tile<kDim, kKeys>(at.v, rows_left<kDim>(at.there), to + kParts);
  };
  load_query_tile<kDim>(q, head, first_row, query_tile);
  load(0);
  ptx::cp_async_commit();
  State state;
  state.start();
  const T* const queries = reinterpret_cast<const T*>(query_tile) + warp * kWarpRows * kDim;
  const std::int64_t row = before + first_row + warp * kWarpRows;  // the warp's first
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) load(t + 1);
    ptx::cp_async_commit();  // an empty group keeps the count
    const std::int64_t first = std::int64_t{t} * kKeys;
    Rotation<T, kDim, kKeys> rotation;
    if constexpr (kRotate) rotation.fetch(first, angles, length);
    ptx::cp_async_wait<1>();
    __syncthreads();
    T* const keys = reinterpret_cast<T*>(stages + t % kStages * 2 * kParts);
    if constexpr (kRotate) {
      rotation.rotate(keys, first, angles, length);
      __syncthreads();
    }
    // Keys after the warp's last row have nothing for it.
    const std::int64_t visible = row + 1 - first;
    if (visible + kWarpRows > 1) {
      const int tile_lane =  // these have no register for what follows from it
          ptx::compiled_for<900, 1200>() ? static_cast<int>(ptx::opaque(threadIdx.x) % 32) : lane;
      state.add_keys(queries, keys, keys + kKeys * kDim, visible, tile_lane, scale);
    }
    __syncthreads();  // the stage is loaded anew
  }
  // The warp's first row of the output, of which `tokens` are left.
  const int token = first_row + warp * kWarpRows;
  state.store(out + token * out_stride + std::int64_t{head} * kDim, out_stride, q.tokens - token,
              lane);
}

}  // namespace

void attention_prefill(const TensorView& q, const KvView& kv, const RopeView& rope,
                       const TensorView& out, cudaStream_t stream) {
#ifdef TF_PREFILL_WGMMA
  if (has_prefill_wgmma(kv)) return attention_prefill_wgmma(q, kv, out, stream);
#endif
  const Queries queries = queries_of(q, kv);
  with_rows_of(kv, [&](auto t, auto dim) {
    using T = decltype(t);
    constexpr std::size_t kParts =
        kBlockRows * dim / kPartElements + kStages * 2 * kTileParts<dim, kStepKeys<dim>>;
    launch(kv.format.rotate_on_read ? prefill_kernel<T, dim, true> : prefill_kernel<T, dim, false>,
           dims(ceil_div(q.shape[0], kBlockRows), q.shape[1]), dims(kAttentionThreads),
           kParts * sizeof(uint4), stream, queries, kv, angles_of(rope), score_scale(kv.head_dim),
           static_cast<T*>(out.data), out.stride[0]);
  });
}

}  // namespace triforce::kernels
