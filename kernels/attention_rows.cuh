// What prefill kernels do with 16 queries, the rows of a warp's products. Sums are those of
// mma.m16n8k16, x[tile of 8 columns][4]: a lane's are of rows lane / 4 (x[.][0], x[.][1]) and
// lane / 4 + 8. Scores are turned into weights by an online softmax in base 2.
#pragma once
#include "kernels/attention_tile.cuh"

namespace triforce::kernels {

// Row 0 sees the first `visible` keys of these, each next row one more; -inf for the others.
template <int kKeyTiles>
TF_DEVICE void hide_keys(float (&x)[kKeyTiles][4], std::int64_t visible, int lane) {
  TF_UNROLL
  for (int n = 0; n < kKeyTiles; ++n) {
    TF_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, key = n * 8 + lane % 4 * 2 + i % 2;
      if (key >= visible + row) x[n][i] = -INFINITY;
    }
  }
}

// Scores of row i of the lane's two to weights; m and l to what they are with them. l is a sum of
// the lane's own columns. Returns the factor of what was summed before. Every row sees the cache's
// first key, so that a maximum is finite from the first tile on.
template <int kKeyTiles>
TF_DEVICE float to_weights(float (&x)[kKeyTiles][4], int i, float scale, float& m, float& l) {
  float m_new = -INFINITY;
  TF_UNROLL
  for (int n = 0; n < kKeyTiles; ++n) m_new = fmaxf(m_new, fmaxf(x[n][2 * i], x[n][2 * i + 1]));
  m_new = fmaxf(m_new, __shfl_xor_sync(0xffffffffU, m_new, 1));
  m_new = fmaxf(m_new, __shfl_xor_sync(0xffffffffU, m_new, 2));
  m_new = fmaxf(m_new * scale, m);
  const float factor = ptx::exp2(m - m_new);  // 0 before the first key
  m = m_new;
  float total = 0;
  TF_UNROLL
  for (int n = 0; n < kKeyTiles; ++n) {
    TF_UNROLL
    for (int j = 2 * i; j < 2 * i + 2; ++j)
      total += x[n][j] = ptx::exp2(fmaf(x[n][j], scale, -m_new));
  }
  l = fmaf(l, factor, total);
  return factor;
}

// Weights of keys [16 j, 16 j + 16) as operand A.
template <class T, int kKeyTiles>
TF_DEVICE void weights_operand(const float (&x)[kKeyTiles][4], int j, std::uint32_t (&p)[4]) {
  TF_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float* const pair = x[2 * j + i / 2] + i % 2 * 2;
    p[i] = pack_pair<T>(pair[0], pair[1]);
  }
}

// o / l to the first `rows` of 16 rows of `out`.
template <class T, int kDimTiles>
TF_DEVICE void store_rows(const float (&o)[kDimTiles][4], const float (&l)[2], T* out,
                          std::int64_t stride, int rows, int lane) {
  TF_UNROLL
  for (int i = 0; i < 2; ++i) {
    float total = l[i];
    total += __shfl_xor_sync(0xffffffffU, total, 1);
    total += __shfl_xor_sync(0xffffffffU, total, 2);
    const int row = lane / 4 + i * 8;
    if (row >= rows) continue;
    T* const to = out + row * stride + lane % 4 * 2;
    TF_UNROLL
    for (int n = 0; n < kDimTiles; ++n) {
      *reinterpret_cast<std::uint32_t*>(to + n * 8) =
          pack_pair<T>(o[n][2 * i] / total, o[n][2 * i + 1] / total);
    }
  }
}

// attention_prefill() with what compute capability 9.0 alone has (attention_prefill_wgmma.cu): of
// which caches, on the current device. There where TF_PREFILL_WGMMA is.
bool has_prefill_wgmma(const KvView& kv);
void attention_prefill_wgmma(const TensorView& q, const KvView& kv, const TensorView& out,
                             cudaStream_t stream);

}  // namespace triforce::kernels
