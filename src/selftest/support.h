// Data on two backends at once, outputs between sentinels, errors in units of what was allowed.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "selftest/conformance.h"
#include "triforce/kv_cache.h"
#include "triforce/random.h"
#include "triforce/weights.h"

namespace triforce::selftest {

inline constexpr double kEps = 0x1.0p-24;  // half a unit in the last place of f32

using Floats = std::vector<float>;

// Sums of four uniforms: near normal, bounded, the same everywhere.
inline Floats normal_values(std::int64_t n, std::uint64_t seed, float scale = 1.0F) {
  Floats out(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint32_t w[4];
    philox_words({seed, 0, 0, 0}, Purpose::kWeights, static_cast<std::uint32_t>(i), 0, w);
    double sum = -2;
    for (const std::uint32_t word : w) sum += static_cast<double>(word) * 0x1.0p-32;
    out[static_cast<std::size_t>(i)] = static_cast<float>(sum * 1.7320508) * scale;
  }
  return out;
}

inline double unit_of(DType t) {
  return t == DType::kBF16 ? 0x1.0p-8 : t == DType::kF16 ? 0x1.0p-11 : kEps;
}

// Relative error of rounding a result to t: none beyond that of f32 arithmetic.
inline double rounding_of(DType t) { return t == DType::kF32 ? 0 : unit_of(t); }

// Absolute error of rounding to t where its numbers are subnormal, and of a product that
// underflows.
inline double underflow_of(DType t) { return t == DType::kF16 ? 0x1.0p-25 : 1e-30; }

// Formats of weights and caches that a backend takes: its activations' own, if those are halves.
inline std::vector<DType> formats_of(const Backend& b) {
  if (b.activation_dtype() != DType::kF32) return {b.activation_dtype()};
  return {DType::kF32, DType::kF16, DType::kBF16};
}

// "bf16 weights", "int4 weights in bf16".
inline std::string text_of(WeightFormat f) {
  return f.is_quantised()
             ? fmt::format("{} weights in {}", to_string(f.quantisation), to_string(f.type))
             : fmt::format("{} weights", to_string(f.type));
}

inline TensorView host_view(Floats& v, std::initializer_list<std::int64_t> shape) {
  return make_view(v.data(), DType::kF32, shape);
}
inline Tensor make_tensor(Backend& b, DType t, std::initializer_list<std::int64_t> shape) {
  return {b.allocator(), t, shape, b.place(), MemTag::kActivations};
}
inline Tensor tensor_of(Backend& b, DType t, std::initializer_list<std::int64_t> shape, Floats v) {
  Tensor out = make_tensor(b, t, shape);
  TensorView host = host_view(v, shape);
  b.upload(out.view(), host);
  return out;
}
inline Tensor activations(Backend& b, std::initializer_list<std::int64_t> shape, const Floats& v) {
  return tensor_of(b, b.activation_dtype(), shape, v);
}
inline Tensor ints_of(Backend& b, std::vector<std::int32_t> v) {
  const auto n = static_cast<std::int64_t>(v.size());
  Tensor out = make_tensor(b, DType::kI32, {n});
  b.upload(out.view(), make_view(v.data(), DType::kI32, {n}));
  return out;
}
inline Floats floats_of(Backend& b, const TensorView& view) {
  Floats out(static_cast<std::size_t>(view.numel()));
  TensorView host = view;
  host.data = out.data();
  host.dtype = DType::kF32;
  std::int64_t stride = 1;
  for (std::size_t i = view.rank; i-- > 0;) {
    host.stride[i] = stride;
    stride *= view.shape[i];
  }
  b.download(host, view);
  return out;
}

// Multiples of 1/8 in [-2, 2]: exact in every format, and so are sums of some thousand products.
inline Floats eighths(std::int64_t n, std::uint64_t seed) {
  Floats out = normal_values(n, seed, 1.5F);
  for (float& x : out) x = std::clamp(std::round(8 * x) / 8, -2.0F, 2.0F);
  return out;
}

// What `v` is after it was stored as `t`.
inline Floats rounded(Backend& b, DType t, const Floats& v) {
  const Tensor held = tensor_of(b, t, {static_cast<std::int64_t>(v.size())}, v);
  return floats_of(b, held.view());
}
inline Floats as_held(Backend& b, const Floats& v) { return rounded(b, b.activation_dtype(), v); }

// A matrix [rows, cols] with gaps between its rows, in the middle of a block filled with `around`:
// as an input, NaN that must not be read; as an output, sentinels that must stay.
class Strided {
 public:
  static constexpr float kSentinel = -1536;  // exact in every format

  Strided(Backend& b, DType t, std::int64_t rows, std::int64_t cols, const Floats& values,
          float around)
      : b_(b),
        rows_(rows),
        cols_(cols),
        // Device code reads rows in parts of 16 bytes; host code any address.
        stride_(b.place() == Place::kHost ? cols + 7 : (cols + 15) / 8 * 8),
        around_(around),
        block_(tensor_of(b, t, {rows + 2, stride_}, surrounded(values))) {}
  // An output, filled with `before`.
  Strided(Backend& b, DType t, std::int64_t rows, std::int64_t cols, float before = 0)
      : Strided(b, t, rows, cols, Floats(static_cast<std::size_t>(rows * cols), before),
                kSentinel) {}
  TensorView view() const {
    TensorView v = block_.view().rows(1, rows_);
    v.shape[1] = cols_;
    return v;
  }
  Floats values() const {
    Floats out;
    for_each([&](float x, bool inside) {
      if (inside) out.push_back(x);
    });
    return out;
  }
  // Whether nothing outside the matrix changed.
  bool intact() const {
    bool all = true;
    for_each([&](float x, bool inside) { all = all && (inside || x == around_); });
    return all;
  }

 private:
  Floats surrounded(const Floats& values) const {
    Floats block(static_cast<std::size_t>((rows_ + 2) * stride_), around_);
    for (std::int64_t r = 0; r < rows_; ++r) {
      std::copy_n(values.begin() + r * cols_, cols_, block.begin() + (r + 1) * stride_);
    }
    return block;
  }
  template <class Visit>
  void for_each(const Visit& visit) const {
    const Floats block = floats_of(b_, block_.view());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(block.size()); ++i) {
      const std::int64_t r = i / stride_ - 1, c = i % stride_;
      visit(block[static_cast<std::size_t>(i)], r >= 0 && r < rows_ && c < cols_);
    }
  }
  Backend& b_;
  std::int64_t rows_, cols_, stride_;
  float around_;
  Tensor block_;
};

// Collects errors of one operation.
class Worst {
 public:
  explicit Worst(std::string name) : name_(std::move(name)) {}
  void see(float got, float want, double tolerance) {
    see(static_cast<double>(got), static_cast<double>(want), tolerance);
  }
  void see(double got, double want, double tolerance) {
    ++count_;
    const double share = std::abs(got - want) / tolerance;
    // Not "share > worst": a NaN must fail.
    if (!(share <= worst_)) worst_ = std::isnan(share) ? INFINITY : share;
  }
  // Every value, NaN being equal to NaN.
  void see_equal(const Floats& got, const Floats& want) {
    see_equal(got.size() == want.size());
    for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
      see_equal(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])));
    }
  }
  // What surrounds an output; a write outside fails the check whatever the errors are.
  void see_intact(const Strided& out) { outside_ = outside_ || !out.intact(); }
  void see_equal(bool equal) {
    exact_ = true;
    ++count_;
    if (!equal) ++wrong_;
  }
  Check check(const char* group = "operations") const {
    if (outside_) return {group, name_, "wrote outside its output", false};
    if (exact_) {
      return {group, name_, fmt::format("{} of {} differ", wrong_, count_),
              wrong_ == 0 && count_ > 0};
    }
    return {group, name_, fmt::format("worst error {:.3f} of tolerance, {} values", worst_, count_),
            worst_ <= 1 && count_ > 0};
  }

 private:
  std::string name_;
  double worst_ = 0;
  std::int64_t count_ = 0, wrong_ = 0;
  bool exact_ = false, outside_ = false;
};

// Sizes that divide nothing; head_dim is one that models have.
// Rows of the largest batch-invariant pass that is checked.
inline constexpr std::int64_t kMostExactRows = 128;

struct Sizes {
  int heads = 6, kv_heads = 2, head_dim = 64, chunk = 8;
  std::int64_t context = 203, positions = 256, vocab = 1009;
  int group() const { return heads / kv_heads; }
  std::int64_t qkv() const { return std::int64_t{heads + 2 * kv_heads} * head_dim; }
  std::int64_t hidden() const { return std::int64_t{heads} * head_dim; }
};

// One layer's cache on one backend, the middle one of `layers`.
class LayerCache {
 public:
  LayerCache(Backend& b, DType dtype, int kv_heads, int d, std::int64_t capacity, int layers = 1)
      : b_(b),
        storage_(b, layers, kv_heads, d, capacity, dtype, MemTag::kKvFull),
        length_(make_tensor(b, DType::kI32, {1})) {}
  void set_length(std::int64_t n) {
    auto value = static_cast<std::int32_t>(n);
    b_.upload(length_.view(), make_view(&value, DType::kI32, {1}));
  }
  KvView view(bool rotate_on_read = false) const {
    KvView kv = storage_.layer(storage_.layers() / 2);
    kv.length = static_cast<const std::int32_t*>(length_.view().data);
    kv.format.rotate_on_read = rotate_on_read;
    return kv;
  }

 protected:
  Backend& b_;
  KvStorage storage_;

 private:
  Tensor length_;
};

// RoPE tables of base 10000 without scaling.
inline RopeTable rope_of(Backend& b, int head_dim) {
  ModelConfig config;
  config.head_dim = head_dim;
  return make_rope_table(b, config, Sizes{}.positions, MemTag::kActivations);
}

// The parts of run_conformance().
void check_row_wise_ops(Backend& tested, Backend& oracle, const Conformance& c, const Emit& emit);
void check_sampling_ops(Backend& tested, Backend& oracle, const Conformance& c, const Emit& emit);
void check_cache_ops(Backend& tested, const Emit& emit);
void check_attention_ops(Backend& tested, Backend& oracle, const Emit& emit);
void check_grouped_rows(Backend& tested, const Emit& emit);
void check_row_invariance(Backend& tested, const Emit& emit);
void check_draft_trees(Backend& tested, const Conformance& c, const Emit& emit);

}  // namespace triforce::selftest
