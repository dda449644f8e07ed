#include "kernels/linear_tile.cuh"
#include "kernels/rope.cuh"

namespace triforce::kernels {
namespace {

// Dimensions j and j + d / 2 of a head, each rounded as linear() rounds it.
template <class T>
struct StoreRotated {
  static constexpr int kStrips = 2;
  template <class W>
  static constexpr bool is_for(int groups) {
    return groups <= kGroupsAtOnce;
  }
  T* qkv;
  std::int64_t stride;
  RopeAppend<T> append;

  TF_DEVICE int half_strips() const { return append.head_dim() / 2 / kTileRows; }
  TF_DEVICE int strip(int block, int s) const {
    const int half = half_strips();
    return block / half * 2 * half + block % half + s * half;
  }
  TF_DEVICE void operator()(int token, int block, int column, const float (&sum)[2]) const {
    const int head = block / half_strips(), j = block % half_strips() * kTileRows + column;
    const T low = from_float<T>(sum[0]), high = from_float<T>(sum[1]);
    T* const both = qkv + token * stride + head * append.head_dim() + j;
    both[0] = low;
    both[append.head_dim() / 2] = high;
    append(head, token, j, low, high);
  }
};

}  // namespace

void linear_rope_append(const TensorView& x, const PackedMatrix& w, const TensorView& qkv,
                        const TensorView& positions, const RopeView& rope, const TensorView& q,
                        std::span<const KvLanes> ranges, cudaStream_t stream) {
  with_weights(w.format, [&](auto weights) {
    using W = decltype(weights);
    using T = typename Weights<W>::Element;
    run_linear<W>(x, w, w.rows / (2 * kTileRows),
                  StoreRotated<T>{static_cast<T*>(qkv.data), qkv.stride[0],
                                  rope_append_of<T>(positions, rope, q, ranges)},
                  stream);
  });
}

}  // namespace triforce::kernels
