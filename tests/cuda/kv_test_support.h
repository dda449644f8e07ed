// KV caches in device memory and, with the same rows, in the oracle's plain layout.
#pragma once
#include <cmath>
#include <cstring>

#include "cuda/cuda_test_support.h"
#include "kernels/kv_layout.cuh"

namespace triforce::cuda {

// [kv_head][row][head_dim] plain values on the host, and the device's view of them.
class TestCache {
 public:
  TestCache(CudaAllocator& a, DType type, int kv_heads, int head_dim, std::int64_t capacity,
            std::int32_t length, unsigned seed)
      : type_(type),
        heads_(kv_heads),
        d_(head_dim),
        capacity_(capacity),
        k(to_halves(normals(elements(), seed), type)),
        v(to_halves(normals(elements(), seed + 1), type)),
        length_host(length),
        k_(a, swizzled(k)),
        v_(a, swizzled(v)),
        length_(a, {length}) {}

  KvView device() const { return view(k_.data(), v_.data(), length_.data()); }
  // Plain rows for the oracle, which knows no swizzle.
  KvView host() { return view(k.data(), v.data(), &length_host); }
  // What the device holds now, in plain order.
  std::vector<std::uint16_t> device_k() const { return plain(k_.values()); }
  std::vector<std::uint16_t> device_v() const { return plain(v_.values()); }

 private:
  std::size_t elements() const { return static_cast<std::size_t>(heads_ * capacity_ * d_); }
  KvView view(void* keys, void* values, const std::int32_t* length) const {
    KvView kv;
    kv.k = keys;
    kv.v = values;
    kv.format.type = type_;
    kv.kv_heads = kv.layer_heads = heads_;
    kv.head_dim = d_;
    kv.capacity = capacity_;
    kv.head_stride = capacity_ * d_;
    kv.length = length;
    return kv;
  }
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::int64_t h = 0; h < heads_; ++h) {
      for (std::int64_t r = 0; r < capacity_; ++r) {
        for (int j = 0; j < d_; ++j) {
          visit(static_cast<std::size_t>((h * capacity_ + r) * d_ + j),
                static_cast<std::size_t>(h * capacity_ * d_ + kernels::kv_element(r, j, d_)));
        }
      }
    }
  }
  std::vector<std::uint16_t> swizzled(const std::vector<std::uint16_t>& rows) const {
    std::vector<std::uint16_t> out(rows.size());
    for_each([&](std::size_t plain_at, std::size_t device_at) { out[device_at] = rows[plain_at]; });
    return out;
  }
  std::vector<std::uint16_t> plain(const std::vector<std::uint16_t>& rows) const {
    std::vector<std::uint16_t> out(rows.size());
    for_each([&](std::size_t plain_at, std::size_t device_at) { out[plain_at] = rows[device_at]; });
    return out;
  }

  DType type_;
  int heads_, d_;
  std::int64_t capacity_;

 public:
  std::vector<std::uint16_t> k, v;
  std::int32_t length_host;

 private:
  OnDevice<std::uint16_t> k_, v_;
  OnDevice<std::int32_t> length_;
};

// RoPE tables of arbitrary angles on both sides.
struct TestRope {
  TestRope(CudaAllocator& a, std::int64_t positions, int head_dim, unsigned seed)
      : shape{positions, head_dim / 2},
        cos(normals(count(positions, head_dim / 2), seed)),
        sin(on_the_circle(cos)),
        cos_(a, cos),
        sin_(a, sin) {}
  RopeView device() const { return view(cos_.data(), sin_.data()); }
  RopeView host() { return view(cos.data(), sin.data()); }

  std::int64_t shape[2];
  std::vector<float> cos, sin;

 private:
  // Angles to their cosines; returns the sines. Rotated rows keep their size.
  static std::vector<float> on_the_circle(std::vector<float>& angles) {
    std::vector<float> sines(angles.size());
    for (std::size_t i = 0; i < angles.size(); ++i) {
      sines[i] = std::sin(angles[i]);
      angles[i] = std::cos(angles[i]);
    }
    return sines;
  }
  RopeView view(float* c, float* s) const {
    return {make_view(c, DType::kF32, {shape[0], shape[1]}),
            make_view(s, DType::kF32, {shape[0], shape[1]})};
  }
  OnDevice<float> cos_, sin_;
};

}  // namespace triforce::cuda
