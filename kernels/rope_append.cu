#include "kernels/kernels.h"

#include "kernels/element.cuh"
#include "kernels/kv_layout.cuh"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

// One block per (head of q, k or v; token), one thread per pair of dimensions (j, j + d / 2).
template <class T>
__global__ void rope_append_kernel(const T* qkv, std::int64_t qkv_stride,
                                   const std::int32_t* positions, Angles angles, T* q,
                                   std::int64_t q_stride, int heads, QkvColumns columns, KvView kv,
                                   int tokens) {
  const int head = static_cast<int>(blockIdx.x), token = static_cast<int>(blockIdx.y);
  const int half = kv.head_dim / 2, j = static_cast<int>(threadIdx.x);
  const bool is_q = head < heads, is_k = !is_q && head < heads + kv.kv_heads;
  const int nth = is_q ? head : is_k ? head - heads : head - heads - kv.kv_heads;
  const T* const in = qkv + token * qkv_stride +
                      (is_q   ? columns.q
                       : is_k ? columns.k
                              : columns.v) +
                      std::int64_t{nth} * kv.head_dim;
  T low = in[j], high = in[j + half];
  if (is_q || (is_k && !kv.rotate_on_read)) {
    const std::int64_t at = positions[token] * angles.stride + j;
    const float c = angles.cos[at], s = angles.sin[at];
    const float a = to_float(low), b = to_float(high);
    low = from_float<T>(fmaf(-b, s, a * c));
    high = from_float<T>(fmaf(a, s, b * c));
  }
  if (is_q) {
    T* const out = q + token * q_stride + std::int64_t{nth} * kv.head_dim;
    out[j] = low;
    out[j + half] = high;
    return;
  }
  const std::int64_t row = *kv.length - tokens + token;
  if (row < 0 || row >= kv.capacity) return;
  T* const rows = static_cast<T*>(is_k ? kv.k : kv.v) + nth * kv.head_stride;
  rows[element_of(kv, is_k, row, j)] = low;
  rows[element_of(kv, is_k, row, j + half)] = high;
}

}  // namespace

void rope_append(const TensorView& qkv, const TensorView& positions, const RopeView& rope,
                 const TensorView& q, const KvView& kv, cudaStream_t stream) {
  const auto tokens = static_cast<int>(qkv.shape[0]);
  const auto heads = static_cast<int>(q.shape[1]);
  with_half(kv.dtype, [&](auto t) {
    using T = decltype(t);
    launch(rope_append_kernel<T>, dims(heads + 2 * kv.kv_heads, tokens), dims(kv.head_dim / 2), 0,
           stream, static_cast<const T*>(qkv.data), qkv.stride[0],
           static_cast<const std::int32_t*>(positions.data), angles_of(rope),
           static_cast<T*>(q.data), q.stride[0], heads, qkv_columns(kv, heads / kv.kv_heads), kv,
           tokens);
  });
}

}  // namespace triforce::kernels
