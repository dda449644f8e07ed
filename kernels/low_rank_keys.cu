// Keys from their low-rank form: gathered rows of coefficients times the basis of a head, and RoPE.
#include <cstddef>

#include "kernels/attention_tile.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
// Of the destination, by a block. Two warps share 32 rows: each has half of the pairs of dimensions
// that are rotated together.
constexpr int kRows = kWarps / 2 * 32;
// Of the rank, that are in shared memory at a time, while those after them are fetched.
constexpr int kPiece = 64;
constexpr int kStages = 2;

// A piece of all rows of coefficients, then of the basis, both in the pattern of KV rows.
constexpr int kCoefficientParts = kRows * kPiece / kPartElements;
template <int kDim>
constexpr int kStageParts = kCoefficientParts + kPiece* kDim / kPartElements;

// A layer's keys in that form.
struct Factors {
  const std::uint16_t *coefficients, *basis;
  int tokens, rank;
};

// Rows [begin, end) of the destination, and of which chunk each is.
struct Chosen {
  const std::int32_t* ids;
  std::int64_t stride;  // of heads
  int chunk, begin, end;

  // Of a row; -1: it stays as it is.
  TF_DEVICE int token(int head, int row, int tokens) const {
    if (row < begin || row >= end) return -1;
    const std::int64_t id = ids[head * stride + row / chunk];
    if (id < 0 || (id + 1) * chunk > tokens) return -1;
    return static_cast<int>(id) * chunk + row % chunk;
  }
};

// Of the rank from `first` on, as much as there is. A row that stays as it is has zeros.
TF_DEVICE void load_coefficients(const Factors& keys, const std::int32_t* tokens, int first,
                                 uint4* to) {
  constexpr int kParts = kPiece / kPartElements, kRowsAtOnce = kThreads / kParts;
  const int row = static_cast<int>(threadIdx.x) / kParts;
  const int part = static_cast<int>(threadIdx.x) % kParts;
  const std::uint16_t* const from = keys.coefficients + first + part * kPartElements;
  to += kv_part(row, part, kPiece) / kPartElements;
  if (part * kPartElements >= keys.rank - first) return;
  TF_UNROLL
  for (int i = 0; i < kRows / kRowsAtOnce; ++i) {
    const int token = tokens[row + i * kRowsAtOnce];
    ptx::cp_async16(to + i * kThreads, from + std::int64_t{max(token, 0)} * keys.rank, token >= 0);
  }
}
template <int kDim>
TF_DEVICE void load_basis(const Factors& keys, int head, int first, uint4* to) {
  constexpr int kParts = kDim / kPartElements, kRowsAtOnce = kThreads / kParts;
  const int row = static_cast<int>(threadIdx.x) / kParts;
  const int part = static_cast<int>(threadIdx.x) % kParts;
  const std::uint16_t* const from =
      keys.basis + (std::int64_t{head} * keys.rank + first + row) * kDim + part * kPartElements;
  to += kv_part(row, part, kDim) / kPartElements;
  TF_UNROLL
  for (int i = 0; i < kPiece / kRowsAtOnce; ++i) {
    if (row + i * kRowsAtOnce >= keys.rank - first) break;
    ptx::cp_async16(to + i * kThreads, from + i * kRowsAtOnce * kDim, true);
  }
}

// A lane's sums: of two tiles of 16 rows; of dimensions and those half a head on; of tiles of 8.
template <int kDim>
using Sums = float[2][2][kDim / 32][4];

// Where a warp and a lane are in the product.
struct Place {
  int first_row, column, lane;
  TF_DEVICE Place()
      : first_row(static_cast<int>(threadIdx.x) / 64 * 32),
        column(static_cast<int>(threadIdx.x) / 32 % 2),
        lane(static_cast<int>(threadIdx.x) % 32) {}
};

// Adds `steps` times 16 of the rank.
template <class T, int kDim>
TF_DEVICE void multiply_piece(const T* stage, int steps, const Place& here, Sums<kDim>& sum) {
  constexpr int kPairs = kDim / 64;  // of tiles of 8, one load each
  const int row = here.lane % 16, side = here.lane / 16;
  const T* const rows = stage + here.first_row * kPiece;
  const T* basis = stage + kCoefficientParts * kPartElements;
  const int of_row = static_cast<int>(kv_part(row, side, kPiece));
  const RowParts of_basis(row, side, kDim);
  TF_UNROLL_N(1)
  for (int s = 0; s < steps; ++s, basis += 16 * kDim) {
    std::uint32_t a[2][4];
    TF_UNROLL
    for (int m = 0; m < 2; ++m) {
      ptx::ldmatrix_x4(a[m], rows + m * 16 * kPiece + (of_row ^ (s * 2 * kPartElements)));
    }
    TF_UNROLL
    for (int half = 0; half < 2; ++half) {
      TF_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        std::uint32_t b[4];
        ptx::ldmatrix_x4<true>(b, basis + of_basis.at((half * 2 + here.column) * kPairs + p));
        TF_UNROLL
        for (int j = 0; j < 2; ++j) {
          const std::uint32_t tile[2] = {b[2 * j], b[2 * j + 1]};
          TF_UNROLL
          for (int m = 0; m < 2; ++m) ptx::mma<T>(sum[m][half][2 * p + j], a[m], tile);
        }
      }
    }
  }
}

// The sums, rotated, as rows of keys to shared memory.
template <class T, int kDim>
TF_DEVICE void rotate_sums(const Sums<kDim>& sum, const Place& here, const std::int32_t* tokens,
                           const Angles& angles, T* to) {
  constexpr int kTiles = kDim / 32;
  const int group = here.lane / 4, pair = here.lane % 4, first = here.column * kTiles;
  int token[4];  // read before stores to the same memory: then angles are fetched ahead of these
  TF_UNROLL
  for (int r = 0; r < 4; ++r) token[r] = max(tokens[here.first_row + r * 8 + group], 0);
  TF_UNROLL
  for (int r = 0; r < 4; ++r) {
    const int row = here.first_row + r * 8 + group;
    const std::int64_t at = token[r] * angles.stride + first * 8 + pair * 2;
    TF_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const float2 c = *reinterpret_cast<const float2*>(angles.cos + at + i * 8);
      const float2 s = *reinterpret_cast<const float2*>(angles.sin + at + i * 8);
      const float* const low = sum[r / 2][0][i] + r % 2 * 2;
      const float* const high = sum[r / 2][1][i] + r % 2 * 2;
      const auto put = [&](int tile, float x, float y) {
        *reinterpret_cast<std::uint32_t*>(to + kv_part(row, tile, kDim) + pair * 2) =
            pack_pair<T>(x, y);
      };
      put(first + i, fmaf(-high[0], s.x, low[0] * c.x), fmaf(-high[1], s.y, low[1] * c.y));
      put(first + i + kDim / 16, fmaf(low[0], s.x, high[0] * c.x),
          fmaf(low[1], s.y, high[1] * c.y));
    }
  }
}

// grid: (kRows rows, KV head). As many blocks as shared memory of an H200 has room for.
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, kDim > 64 ? 2 : 3)
    expand_keys_kernel(Factors keys, Chosen chosen, Angles angles, KvView dst) {
  const int thread = static_cast<int>(threadIdx.x), head = static_cast<int>(blockIdx.y);
  // The pattern of rows in shared memory is that of the destination's.
  const int first_row = chosen.begin / 8 * 8 + static_cast<int>(blockIdx.x) * kRows;
  TF_SHARED(uint4, shared);
  auto* const tokens = reinterpret_cast<std::int32_t*>(shared + kStages * kStageParts<kDim>);
  if (thread < kRows) tokens[thread] = chosen.token(head, first_row + thread, keys.tokens);
  __syncthreads();
  const auto load = [&](int first) {
    uint4* const stage = shared + first / kPiece % kStages * kStageParts<kDim>;
    load_coefficients(keys, tokens, first, stage);
    load_basis<kDim>(keys, head, first, stage + kCoefficientParts);
    ptx::cp_async_commit();
  };
  load(0);
  const Place here;
  Sums<kDim> sum = {};
  TF_UNROLL_N(1)
  for (int first = 0; first < keys.rank; first += kPiece) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // all threads have done with the piece before
    if (first + kPiece < keys.rank) load(first + kPiece);
    const uint4* const stage = shared + first / kPiece % kStages * kStageParts<kDim>;
    multiply_piece<T, kDim>(reinterpret_cast<const T*>(stage), min(keys.rank - first, kPiece) / 16,
                            here, sum);
  }
  __syncthreads();
  rotate_sums<T, kDim>(sum, here, tokens, angles, reinterpret_cast<T*>(shared));
  __syncthreads();
  constexpr int kParts = kDim / kPartElements;
  uint4* const to = reinterpret_cast<uint4*>(
      static_cast<std::uint16_t*>(dst.k) + head * dst.head_stride + std::int64_t{first_row} * kDim);
  TF_UNROLL
  for (int i = thread; i < kRows * kParts; i += kThreads) {
    if (tokens[i / kParts] >= 0) to[i] = shared[i];
  }
}

}  // namespace

void expand_keys(const LowRankKeys& keys, const TensorView& ids, int chunk, std::int64_t first,
                 const RopeView& rope, const KvView& dst, cudaStream_t stream) {
  const TensorView& a = keys.coefficients;
  const Factors factors{static_cast<const std::uint16_t*>(a.data),
                        static_cast<const std::uint16_t*>(keys.basis.data),
                        static_cast<int>(a.shape[0]), static_cast<int>(a.shape[1])};
  const Chosen chosen{static_cast<const std::int32_t*>(ids.data), ids.stride[0], chunk,
                      static_cast<int>(first * chunk), static_cast<int>(ids.shape[1] * chunk)};
  with_rows_of(dst, [&](auto t, auto dim) {
    constexpr std::size_t kShared =
        kStages * kStageParts<dim> * sizeof(uint4) + kRows * sizeof(std::int32_t);
    launch(expand_keys_kernel<decltype(t), dim>,
           dims(ceil_div(chosen.end - chosen.begin / 8 * 8, kRows), dst.kv_heads), dims(kThreads),
           kShared, stream, factors, chosen, angles_of(rope), dst);
  });
}

}  // namespace triforce::kernels
