// Calls that follow each other in a pass, done by one kernel where there is one for them.
#pragma once
#include <functional>
#include <utility>

#include "kernels/kernels.h"

namespace triforce::cuda {

// A norm and the product of it are held back until the call after them is known, which may take
// them along. What a call writes is written all the same, to the same bits: who gives a stream
// anything else, or waits for it, only has to call finish() before.
class FusedSteps {
 public:
  // As the calls of Backend, for 1 to kMaxBatchInvariantRows rows; rope_append() and swiglu() for
  // any number.
  void rms_norm(TensorView x, TensorView w, float eps, TensorView out, cudaStream_t stream);
  void linear(TensorView x, const Matrix& w, TensorView out, bool accumulate, cudaStream_t stream);
  void swiglu(TensorView gate_up, TensorView out, cudaStream_t stream);
  void rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                   const KvView& kv, cudaStream_t stream);
  // Queues in `stream` what was held back.
  void finish(cudaStream_t stream);
  // body(), and what it leaves held back; nothing of that if it throws: a recording that is given
  // up takes its calls along.
  void finish_after(const std::function<void()>& body, cudaStream_t stream);

 private:
  // A product whose sums nobody has taken yet.
  struct Product {
    TensorView x;
    kernels::PackedMatrix w;
    TensorView out;
  };
  // Whether the kernel of the product held back, which is `out`, can also write `result`.
  bool can_go_on(const TensorView& out, const TensorView& result) const;
  // What is held back, which ends with that: each is queued once, even if a launch throws.
  std::pair<kernels::Norm, Product> take();

  kernels::Norm norm_;  // x.data set: held back; with a product held back, it is of this norm
  Product product_;     // w.data set: held back
};

}  // namespace triforce::cuda
