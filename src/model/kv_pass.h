// Where a pass's length and positions lie.
#pragma once
#include <cstdint>
#include <vector>

#include "triforce/backend.h"

namespace triforce {

// Length and positions of the pass in progress, in memory that ops read. Fixed addresses, so that
// recorded passes stay valid.
class PassInputs {
 public:
  PassInputs(Backend& backend, std::int64_t max_append);
  // n rows at [first_position, first_position + n); `length` rows are valid after the append.
  void set(std::int64_t first_position, std::int64_t n, std::int64_t length);
  TensorView positions() const { return device_.view().rows(1, n_); }  // [n] i32
  const std::int32_t* length() const { return device_.view().as<std::int32_t>(); }

 private:
  Backend& b_;
  Tensor device_;  // [1 + max_append] i32: length, then positions
  std::vector<std::int32_t> host_;
  std::int64_t n_ = 0;
};

// A view of [data, ...) with the strides of a contiguous tensor of `shape`.
inline TensorView reshape(const TensorView& v, std::initializer_list<std::int64_t> shape) {
  return make_view(v.data, v.dtype, shape);
}

}  // namespace triforce
