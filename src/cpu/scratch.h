// Hands out aligned pieces of scratch for the duration of one op.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "core/rounding.h"
#include "cpu/workers.h"

namespace triforce::cpu {

class Scratch {
 public:
  // Over 64-byte aligned memory.
  explicit Scratch(std::span<std::byte> memory) : base_(memory.data()), size_(memory.size()) {}
  explicit Scratch(const Workers& workers) : Scratch(workers.scratch) {}
  // Gives null pointers and counts what they would need.
  static Scratch counting() {
    return Scratch({static_cast<std::byte*>(nullptr), std::numeric_limits<std::size_t>::max()});
  }

  // Uninitialised, 64-byte aligned. TF_CHECKs that leases provided enough.
  template <class T>
  T* take(std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(round_up(count * std::int64_t{sizeof(T)}, 64));
    TF_CHECK(bytes <= size_ - used_, "scratch: {} bytes needed, {} left; lease a larger shape",
             bytes, size_ - used_);
    T* p = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += bytes;
    return p;
  }
  std::int64_t used() const { return static_cast<std::int64_t>(used_); }

 private:
  std::byte* base_;
  std::size_t size_, used_ = 0;
};

}  // namespace triforce::cpu
