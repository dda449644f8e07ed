#include "kernels/kernels.h"

#include "kernels/launch.cuh"
#include "kernels/rope.cuh"

namespace triforce::kernels {
namespace {

// One block per (head of q, k or v; kTokens tokens; sequence), one thread per pair of dimensions
// (j, j + d/2) of these tokens, whose loads are under way together.
template <class T, int kTokens>
__global__ void rope_append_kernel(const T* qkv, std::int64_t qkv_stride, QkvColumns columns,
                                   RopeAppend<T> append) {
  const int head = static_cast<int>(blockIdx.x);
  const int token = static_cast<int>(blockIdx.y) * kTokens, lane = static_cast<int>(blockIdx.z);
  const int heads = append.heads, kv_heads = append.kv_heads, d = append.head_dim();
  const int j = static_cast<int>(threadIdx.x);
  const bool is_q = head < heads, is_k = !is_q && head < heads + kv_heads;
  const std::int64_t first = is_q ? columns.q : is_k ? columns.k : columns.v;
  const int nth = is_q ? head : is_k ? head - heads : head - heads - kv_heads;
  const int row = lane * append.tokens;  // the lane's first
  const T* const in = qkv + row * qkv_stride + first + std::int64_t{nth} * d + j;
  T low[kTokens], high[kTokens];
  TF_UNROLL
  for (int i = 0; i < kTokens; ++i) {
    const int there = min(token + i, append.tokens - 1);
    low[i] = in[there * qkv_stride];
    high[i] = in[there * qkv_stride + d / 2];
  }
  TF_UNROLL
  for (int i = 0; i < kTokens; ++i) {
    append.turn(head, row + min(token + i, append.tokens - 1), j, low[i], high[i]);
  }
  const auto target = append.target_of(head, lane);
  TF_UNROLL
  for (int i = 0; i < kTokens; ++i) {
    if (token + i < append.tokens) append.put(target, token + i, j, low[i], high[i]);
  }
}

}  // namespace

void rope_append(const TensorView& qkv, const TensorView& positions, const RopeView& rope,
                 const TensorView& q, std::span<const KvLanes> ranges, cudaStream_t stream) {
  const auto heads = static_cast<int>(q.shape[1]);
  const int kv_heads = kv_heads_of(ranges);
  const KvView& kv = ranges.front().kv;
  const std::int64_t each = qkv.shape[0] / ranges.front().count;
  with_half(kv.format.type, [&](auto t) {
    using T = decltype(t);
    const auto run = [&](auto tokens) {
      launch(rope_append_kernel<T, tokens>,
             dims(heads + 2 * kv_heads, ceil_div(each, tokens.value), ranges.front().count),
             dims(kv.head_dim / 2), 0, stream, static_cast<const T*>(qkv.data), qkv.stride[0],
             qkv_columns(kv, heads / kv_heads), rope_append_of<T>(positions, rope, q, ranges));
    };
    // Of few rows the first one's way to memory counts, of many how many are on their way.
    if (each > kMaxBatchInvariantRows) {
      run(std::integral_constant<int, 8>{});
    } else {
      run(std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace triforce::kernels
