#include "kernels/linear_tile.cuh"
#include "kernels/swiglu.cuh"

namespace triforce::kernels {
namespace {

// Gate and up of the same features, each rounded as linear() rounds it.
template <class T>
struct StoreSwiglu {
  static constexpr int kStrips = 2;
  template <class W>
  static constexpr bool is_for(int groups) {
    return groups <= kGroupsAtOnce;
  }
  T* gate_up;
  std::int64_t stride;
  T* out;
  std::int64_t out_stride;
  int features;

  TF_DEVICE int strip(int block, int s) const { return block + s * (features / kTileRows); }
  TF_DEVICE void operator()(int token, int block, int column, const float (&sum)[2]) const {
    const int col = block * kTileRows + column;
    const T gate = from_float<T>(sum[0]), up = from_float<T>(sum[1]);
    T* const both = gate_up + token * stride + col;
    both[0] = gate;
    both[features] = up;
    out[token * out_stride + col] = swiglu_of(gate, up);
  }
};

}  // namespace

bool has_linear_swiglu(const PackedMatrix& w) { return w.rows % (2 * kTileRows) == 0; }

void linear_swiglu(const TensorView& x, const PackedMatrix& w, const TensorView& gate_up,
                   const TensorView& out, cudaStream_t stream) {
  with_weights(w.format, [&](auto weights) {
    using W = decltype(weights);
    using T = typename Weights<W>::Element;
    const auto features = static_cast<int>(w.rows / 2);
    run_linear<W>(x, w, features / kTileRows,
                  StoreSwiglu<T>{static_cast<T*>(gate_up.data), gate_up.stride[0],
                                 static_cast<T*>(out.data), out.stride[0], features},
                  stream);
  });
}

}  // namespace triforce::kernels
