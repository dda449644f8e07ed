// The attention that every chunk of a full cache has received so far, by which H2O keeps its heavy
// hitters (arXiv 2306.14048).
#pragma once
#include <cstdint>

#include "triforce/backend.h"

namespace triforce {

class AttentionSums {
 public:
  // All sums begin at zero. Throws Error(kResources).
  AttentionSums(Backend& backend, int layers, int kv_heads, std::int64_t chunks)
      : b_(backend),
        now_(make(layers, kv_heads, chunks)),
        marked_(make(layers, kv_heads, chunks)) {}
  // Returns how much memory it takes, tagged as workspace.
  static std::int64_t bytes(int layers, int kv_heads, std::int64_t chunks) {
    return std::int64_t{2} * layers * kv_heads * chunks * size_of(DType::kF32);
  }
  // mass[n, chunks] of KV heads [first_head, first_head + n).
  void add(int layer, int first_head, TensorView mass) {
    const std::int64_t heads = mass.shape[0], chunks = mass.shape[1];
    b_.add_parts(make_view(mass.data, DType::kF32, {1, heads, chunks}),
                 of_layer(layer).rows(first_head, heads));
  }
  // [kv_heads, chunks] f32
  TensorView of_layer(int layer) const {
    const TensorView& all = now_.view();
    return make_view(all.rows(layer, 1).data, DType::kF32, {all.shape[1], all.shape[2]});
  }
  void mark() { b_.copy(marked_.view(), now_.view()); }
  void rewind() { b_.copy(now_.view(), marked_.view()); }
  void reset() { b_.clear(now_.view()); }

 private:
  Tensor make(std::int64_t layers, std::int64_t kv_heads, std::int64_t chunks) const {
    return {
        b_.allocator(), DType::kF32, {layers, kv_heads, chunks}, b_.place(), MemTag::kWorkspace};
  }

  Backend& b_;
  Tensor now_, marked_;
};

}  // namespace triforce
