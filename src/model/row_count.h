#pragma once
#include <cstdint>

#include "triforce/backend.h"

namespace triforce {

// A number of rows in memory that ops read: KvView::length of calls that are no pass.
class RowCount {
 public:
  // Throws Error(kResources).
  explicit RowCount(Backend& backend)
      : b_(backend),
        device_(backend.allocator(), DType::kI32, {1}, backend.place(), MemTag::kWorkspace) {}
  void set(std::int64_t rows) {
    auto value = static_cast<std::int32_t>(rows);
    b_.upload(device_.view(), make_view(&value, DType::kI32, {1}));
  }
  const std::int32_t* get() const { return device_.view().as<std::int32_t>(); }
  static std::int64_t bytes() { return size_of(DType::kI32); }

 private:
  Backend& b_;
  Tensor device_;
};

}  // namespace triforce
