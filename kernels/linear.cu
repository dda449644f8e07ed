#include "kernels/linear_tile.cuh"

namespace triforce::kernels {
namespace {

// Every column to where it belongs, or added to what is there.
template <class Out>
struct StoreColumns {
  static constexpr int kStrips = 1;
  Out* out;
  std::int64_t stride;
  int cols;
  bool accumulate;

  TF_DEVICE int strip(int block, int /*s*/) const { return block; }
  TF_DEVICE void operator()(int token, int block, int column, const float (&sum)[1]) const {
    const int col = block * kTileRows + column;
    if (col >= cols) return;
    Out* const to = out + token * stride + col;
    if constexpr (std::is_same_v<Out, float>) {
      *to = accumulate ? *to + sum[0] : sum[0];
    } else {
      *to = from_float<Out>(sum[0]);
    }
  }
};

}  // namespace

void linear(const TensorView& x, const Norm& norm, const PackedMatrix& w, const TensorView& out,
            bool accumulate, cudaStream_t stream) {
  with_half(w.dtype, [&](auto t) {
    using T = decltype(t);
    const auto run = [&](auto o) {
      using Out = decltype(o);
      run_linear<T>(x, norm, w, tiles_of(w.rows, kTileRows),
                    StoreColumns<Out>{static_cast<Out*>(out.data), out.stride[0],
                                      static_cast<int>(w.rows), accumulate},
                    stream);
    };
    if (out.dtype == DType::kF32) {
      run(float{});
    } else {
      run(t);
    }
  });
}

}  // namespace triforce::kernels
