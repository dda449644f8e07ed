// Calls that follow each other in a pass, done by one kernel where there is one for them.
#pragma once
#include <array>
#include <cstddef>
#include <functional>
#include <span>

#include "kernels/kernels.h"

namespace triforce::cuda {

// A product, the appending of some of a layer's KV heads from it, or the probabilities of a row a
// sequence are held back until the call after them is known, which may take them along. What a call
// writes is written all the same, to the same bits: who gives a stream anything else, waits for it
// or gives memory back only has to call finish() before.
class FusedSteps {
 public:
  // As the calls of Backend, for 1 to kMaxBatchInvariantRows rows; rope_append() and swiglu() for
  // any number. The product takes along the calls of rope_append() for all KV heads of its layer,
  // if they follow each other in rising order.
  void linear(TensorView x, const Matrix& w, TensorView out, bool accumulate, cudaStream_t stream);
  void swiglu(TensorView gate_up, TensorView out, cudaStream_t stream);
  void rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                   std::span<const KvView> sequences, cudaStream_t stream);
  // As the calls of Backend; sample() leaves its results where kernels::sample() does. One kernel
  // does both where each row gives one token, in order.
  void to_probs(std::span<const ProbsRequest> requests, const SamplingParams& params,
                cudaStream_t stream);
  void sample(std::span<const SampleRequest> requests, Acceptance acceptance, void* jobs,
              Token* out, cudaStream_t stream);
  // Records an event after the calls so far. Probabilities stay held back, and their time is that
  // of the kernel they become part of: a draw then takes none of its own. Throws Error(kDevice).
  void record(cudaEvent_t event, cudaStream_t stream);
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
  // What follows the product for the first KV heads of its layer; q of their query heads.
  struct Append {
    TensorView positions;
    RopeView rope;
    TensorView q;
    std::array<kernels::KvLanes, kernels::kMaxHeadRanges> kv;
    std::size_t count = 0;
    std::span<const kernels::KvLanes> ranges() const { return std::span(kv).first(count); }
  };
  // What one kernel makes, or two.
  struct Held {
    Product product;
    Append append;
  };
  // Probabilities that nobody has drawn from yet, and the events that follow them.
  struct Probs {
    kernels::ProbsRows rows;
    SamplingParams params;
    std::array<cudaEvent_t, 8> events{};
    std::size_t event_count = 0;
  };
  static void record_all(const Probs& probs, cudaStream_t stream);
  // Whether the requests are for one token of each row held back.
  bool are_of_probs(std::span<const SampleRequest> requests) const;
  // Whether the kernel of the product held back, which is `out`, can also write `result`.
  bool can_go_on(const TensorView& out, const TensorView& result) const;
  // Whether it can also append these heads, beside those of append_.
  bool can_append(const TensorView& qkv, const TensorView& positions, const RopeView& rope,
                  const TensorView& q, const kernels::KvLanes& lanes) const;
  // What is held back but probabilities, which ends with that: each is queued once, even if a
  // launch throws.
  Held take();

  Product product_;  // w.data set: held back
  Append append_;    // count > 0: held back, and so is the product
  Probs probs_;      // rows.count > 0: held back, and neither of the above is
};

}  // namespace triforce::cuda
