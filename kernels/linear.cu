#include "kernels/linear_tile.cuh"

namespace triforce::kernels {
namespace {

// Of so many rows x is larger than the strip of weights that it meets, and of the widest products
// no first-level cache holds it: two strips share what was fetched.
template <class W>
constexpr bool are_many(int groups) {
  return groups > Weights<W>::kFewGroups;
}

// Every column to where it belongs, or added to what is there.
template <class Out, int kOwnStrips>
struct StoreColumns {
  static constexpr int kStrips = kOwnStrips;
  Out* out;
  std::int64_t stride;
  int cols;
  bool accumulate;

  template <class W>
  static constexpr bool is_for(int groups) {
    return are_many<W>(groups) == (kStrips > 1);
  }
  // The last one again where there is none; its columns go nowhere.
  TF_DEVICE int strip(int block, int s) const {
    return min(block * kStrips + s, (cols - 1) / kTileRows);
  }
  TF_DEVICE void operator()(int token, int block, int column, const float (&sum)[kStrips]) const {
    TF_UNROLL
    for (int s = 0; s < kStrips; ++s) {
      const int col = (block * kStrips + s) * kTileRows + column;
      if (col >= cols) return;
      Out* const to = out + token * stride + col;
      if constexpr (std::is_same_v<Out, float>) {
        *to = accumulate ? *to + sum[s] : sum[s];
      } else {
        *to = from_float<Out>(sum[s]);
      }
    }
  }
};

template <class W>
void run_linear_of(const TensorView& x, const PackedMatrix& w, const TensorView& out,
                   bool accumulate, cudaStream_t stream) {
  using T = typename Weights<W>::Element;
  const auto run = [&](auto o, auto strips) {
    using Out = decltype(o);
    run_linear<W>(x, w, ceil_div(w.rows, strips * kTileRows),
                  StoreColumns<Out, strips>{static_cast<Out*>(out.data), out.stride[0],
                                            static_cast<int>(w.rows), accumulate},
                  stream);
  };
  const auto run_rows = [&](auto o) {
    if (are_many<W>(static_cast<int>(ceil_div(x.shape[0], kTokens)))) {
      run(o, std::integral_constant<int, 2>{});
    } else {
      run(o, std::integral_constant<int, 1>{});
    }
  };
  if (out.dtype == DType::kF32) {
    run_rows(float{});
  } else {
    run_rows(T{});
  }
}

}  // namespace

void linear(const TensorView& x, const PackedMatrix& w, const TensorView& out, bool accumulate,
            cudaStream_t stream) {
  with_weights(w.format, [&](auto weights) {
    using W = decltype(weights);
    for (std::int64_t first = 0; first < x.shape[0]; first += Weights<W>::kMaxRows) {
      const std::int64_t rows = std::min(Weights<W>::kMaxRows, x.shape[0] - first);
      run_linear_of<W>(x.rows(first, rows), w, out.rows(first, rows), accumulate, stream);
    }
  });
}

}  // namespace triforce::kernels
