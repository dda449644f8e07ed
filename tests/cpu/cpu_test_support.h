// What the tests of CPU operations share: levels of this machine, contexts, seeded values.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/host_allocator.h"
#include "cpu/workers.h"

namespace triforce::cpu {

// The levels this machine has, best first: oneDNN's limit is set by the first backend of a process.
inline std::vector<Isa> levels() { return {usable_isas().rbegin(), usable_isas().rend()}; }

inline std::string test_name(Isa isa) {
  std::string name = to_string(isa);
  std::erase(name, '-');
  return name;
}

// Workers with scratch of their own.
class TestContext {
 public:
  TestContext(Isa isa, int threads, std::int64_t scratch_bytes)
      : scratch_(allocator_, scratch_bytes, Place::kHost, MemTag::kWorkspace) {
    workers_.isa = isa;
    workers_.threads = threads;
    workers_.scratch = {static_cast<std::byte*>(scratch_.data()),
                        static_cast<std::size_t>(scratch_bytes)};
  }
  const Workers& get() const { return workers_; }
  Workers& get() { return workers_; }
  HostAllocator& allocator() { return allocator_; }

 private:
  HostAllocator allocator_;
  Buffer scratch_;
  Workers workers_;
};

// f32 rows [rows, cols] inside a larger block of sentinels, to catch writes outside.
class Guarded {
 public:
  Guarded(std::int64_t rows, std::int64_t cols, float fill)
      : rows_(rows), cols_(cols), stride_(cols + 7) {
    data_.assign(static_cast<std::size_t>((rows + 2) * stride_), kSentinel);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) at(r, c) = fill;
    }
  }
  float& at(std::int64_t r, std::int64_t c) {
    return data_[static_cast<std::size_t>((r + 1) * stride_ + c)];
  }
  TensorView view() {
    TensorView v = make_view(&at(0, 0), DType::kF32, {rows_, cols_});
    v.stride[0] = stride_;
    return v;
  }
  // Whether nothing outside the rows changed.
  bool intact() const {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(data_.size()); ++i) {
      const std::int64_t r = i / stride_ - 1, c = i % stride_;
      const bool inside = r >= 0 && r < rows_ && c < cols_;
      if (!inside && data_[static_cast<std::size_t>(i)] != kSentinel) return false;
    }
    return true;
  }

 private:
  static constexpr float kSentinel = -12345.5F;
  std::int64_t rows_, cols_, stride_;
  std::vector<float> data_;
};

inline std::vector<float> normal_values(std::int64_t n, std::uint32_t seed, float scale = 1.0F) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v) x = normal(rng);
  return v;
}

// Integers in [-limit, limit]: their products and sums are exact in every order.
inline std::vector<float> integer_values(std::int64_t n, std::uint32_t seed, int limit) {
  std::mt19937 rng(seed);
  std::uniform_int_distribution<int> uniform(-limit, limit);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v) x = static_cast<float>(uniform(rng));
  return v;
}

}  // namespace triforce::cpu
