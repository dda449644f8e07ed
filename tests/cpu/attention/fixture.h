// Caches with known rows, and attention in double over them, for the tests of this folder.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/elements.h"
#include "cpu/cpu_test_support.h"
#include "cpu/kv_ops.h"

namespace triforce::cpu::test {

inline constexpr DType kFormats[] = {DType::kF32, DType::kF16, DType::kBF16};

// 64-byte aligned bytes between two fences, everything filled with a pattern that is NaN in all
// three formats; check() fails if a fence was written.
class FencedBytes {
 public:
  explicit FencedBytes(std::int64_t bytes) : bytes_(bytes) {
    all_.assign(static_cast<std::size_t>(bytes + 3 * kFence), std::byte{0xff});
    const auto at = reinterpret_cast<std::uintptr_t>(all_.data());
    begin_ = all_.data() + (kFence - at % kFence) + kFence;
  }
  std::byte* data() { return begin_; }
  std::int64_t bytes() const { return bytes_; }
  void refill() { std::fill_n(begin_, bytes_, std::byte{0xff}); }
  void check(const char* what) const {
    for (const std::byte* p = all_.data(); p < all_.data() + all_.size(); ++p) {
      if (p >= begin_ && p < begin_ + bytes_) continue;
      ASSERT_EQ(*p, std::byte{0xff}) << what << ": byte " << p - begin_ << " of " << bytes_;
    }
  }

 private:
  static constexpr std::int64_t kFence = 256;
  std::vector<std::byte> all_;
  std::byte* begin_;
  std::int64_t bytes_;
};

inline float rounded(DType type, float x) {
  float r = x;
  visit_float(type, [&](auto f) { r = f.load(f.store(x)); });
  return r;
}

// One layer's cache. Rows never set hold NaN.
struct Cache {
  DType type;
  int heads, d;
  std::int64_t capacity;
  std::int32_t length = 0;
  FencedBytes k, v;

  Cache(DType t, int kv_heads, int head_dim, std::int64_t rows)
      : type(t),
        heads(kv_heads),
        d(head_dim),
        capacity((rows + 15) / 16 * 16),
        k(kv_heads * capacity * head_dim * size_of(t)),
        v(kv_heads * capacity * head_dim * size_of(t)) {}

  KvView view() {
    KvView kv;
    kv.k = k.data();
    kv.v = v.data();
    kv.format.type = type;
    kv.kv_heads = kv.layer_heads = heads;
    kv.head_dim = d;
    kv.capacity = capacity;
    kv.head_stride = capacity * d;
    kv.length = &length;
    return kv;
  }
  std::int64_t element(bool key, std::int64_t head, std::int64_t row, int i) const {
    const int pair = pairing(type);
    return head * capacity * d + (key ? k_element(pair, d, row, i) : v_element(pair, d, row, i));
  }
  void set(bool key, std::int64_t head, std::int64_t row, int i, float x) {
    visit_float(type, [&](auto f) {
      using S = typename decltype(f)::Stored;
      const S s = f.store(x);
      std::memcpy((key ? k : v).data() + element(key, head, row, i) * std::int64_t{sizeof(S)}, &s,
                  sizeof(S));
    });
  }
  float get(bool key, std::int64_t head, std::int64_t row, int i) {
    float r = 0;
    visit_float(type, [&](auto f) {
      using S = typename decltype(f)::Stored;
      S s;
      std::memcpy(&s, (key ? k : v).data() + element(key, head, row, i) * std::int64_t{sizeof(S)},
                  sizeof(S));
      r = f.load(s);
    });
    return r;
  }
  // Random rows [begin, end); the same row gets the same values whatever the range.
  void fill(std::int64_t begin, std::int64_t end, unsigned seed, float scale = 1.0F) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::mt19937 rng(seed * 7919U + static_cast<unsigned>(row));
      std::normal_distribution<float> normal(0.0F, scale);
      for (int h = 0; h < heads; ++h) {
        for (int i = 0; i < d; ++i) {
          set(true, h, row, i, normal(rng));
          set(false, h, row, i, normal(rng));
        }
      }
    }
  }
};

inline std::vector<float> random_floats(std::int64_t n, unsigned seed, float scale = 1.0F) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& f : x) f = normal(rng);
  return x;
}

struct Rope {
  std::vector<float> cos, sin;
  std::int64_t positions;
  int half;
  Rope(std::int64_t n, int d) : positions(n), half(d / 2) {
    for (std::int64_t p = 0; p < n; ++p) {
      for (int i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / half);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
  RopeView view() {
    return {make_view(cos.data(), DType::kF32, {positions, half}),
            make_view(sin.data(), DType::kF32, {positions, half})};
  }
};

struct Case {
  Isa isa = Isa::kScalar;
  DType type = DType::kF32;
  int heads = 1, kv_heads = 1, d = 16;
  std::int64_t queries = 1, length = 1;
  int threads = 1, chunk = 0;
  bool rotate = false;

  // Of a call of so many rows in all.
  Backend::ScratchShape scratch_shape(std::int64_t rows) const {
    Backend::ScratchShape shape;
    shape.rows = rows;
    shape.context = length;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = d;
    shape.chunk_size = chunk;
    return shape;
  }
  std::string name() const {
    return fmt::format("{} {} heads {}/{} d {} queries {} length {} threads {} chunk {}{}",
                       to_string(isa), to_string(type), heads, kv_heads, d, queries, length,
                       threads, chunk, rotate ? " rotate" : "");
  }
};

// body(case, seed) for every shape at every level of this processor and in every format.
template <class Body>
void at_every_level(std::span<const Case> shapes, unsigned seed, const Body& body) {
  for (const Isa isa : levels()) {
    for (const DType type : kFormats) {
      for (Case c : shapes) {
        c.isa = isa;
        c.type = type;
        body(c, seed++);
      }
    }
  }
}

// Runs attention over the last `queries` of the cache's rows; mass (if chunk > 0) in [Hkv, chunks].
struct AttentionRun {
  std::vector<float> out, mass;

  AttentionRun(const Case& c, Cache& cache, const std::vector<float>& q, Rope* rope = nullptr) {
    cache.length = static_cast<std::int32_t>(c.length);
    KvView kv = cache.view();
    kv.format.rotate_on_read = c.rotate;
    FencedBytes scratch(kv_scratch_bytes(c.scratch_shape(c.queries), c.threads));
    const Workers workers{
        c.isa, c.threads, {scratch.data(), static_cast<std::size_t>(scratch.bytes())}};
    const std::int64_t n = c.queries * c.heads * c.d;
    FencedBytes result(n * 4);
    const std::int64_t chunks = c.chunk > 0 ? cache.capacity / c.chunk : 0;
    FencedBytes sums(c.kv_heads * chunks * 4);
    TensorView mass_view;
    if (c.chunk > 0) mass_view = make_view(sums.data(), DType::kF32, {c.kv_heads, chunks});
    std::vector<float> query = q;
    attention(workers, make_view(query.data(), DType::kF32, {c.queries, c.heads, c.d}),
              std::span(&kv, 1), rope == nullptr ? RopeView{} : rope->view(),
              make_view(result.data(), DType::kF32, {c.queries, c.heads * c.d}),
              std::span(&mass_view, c.chunk > 0 ? 1 : 0), c.chunk, throughput_path(c.queries));
    scratch.check("scratch");
    result.check("out");
    sums.check("mass");
    out.resize(static_cast<std::size_t>(n));
    std::memcpy(out.data(), result.data(), static_cast<std::size_t>(result.bytes()));
    mass.resize(static_cast<std::size_t>(c.kv_heads * chunks));
    if (c.chunk > 0) {
      std::memcpy(mass.data(), sums.data(), static_cast<std::size_t>(sums.bytes()));
    }
  }
};

// One row of attention in double: probabilities, output, and the bound on the error of the kernels.
struct OracleRow {
  std::vector<double> p, out, bound;
  double p_bound = 0;  // relative error of a probability
};

// Bound: a score is a sum of d products in f32 (and, with vdpbf16ps, of a query rounded to bf16);
// an error e of all scores changes a probability by at most exp(2 e); then come the rounding of
// exp2 (2.5e-7), of P to bf16, and the sum of `length` products in f32. Rotated keys are rounded
// once more to the row format.
inline OracleRow oracle_row(const Case& c, Cache& cache, const float* q, std::int64_t head,
                            std::int64_t seen, const Rope* rope = nullptr) {
  const double eps = 0x1.0p-24;
  const bool dot = c.isa >= Isa::kAvx512Bf16 && c.type == DType::kBF16;
  const double q_error = dot ? 0x1.0p-8 : 0.0, p_error = dot ? 0x1.0p-8 : 0.0;
  const double k_error = !c.rotate                ? 0.0
                         : c.type == DType::kBF16 ? 0x1.0p-8
                         : c.type == DType::kF16  ? 0x1.0p-11
                                                  : 4 * eps;
  OracleRow r;
  std::vector<double> score, key(static_cast<std::size_t>(c.d));
  double worst = 0;
  for (std::int64_t row = 0; row < seen; ++row) {
    for (int i = 0; i < c.d; ++i) {
      key[static_cast<std::size_t>(i)] = static_cast<double>(cache.get(true, head, row, i));
    }
    double norm = 0;
    for (const double x : key) norm += x * x;
    if (c.rotate) {
      const int half = c.d / 2;
      for (int i = 0; i < half; ++i) {
        const auto at = static_cast<std::size_t>(row * half + i);
        const double cs = static_cast<double>(rope->cos[at]);
        const double sn = static_cast<double>(rope->sin[at]);
        double& a = key[static_cast<std::size_t>(i)];
        double& b = key[static_cast<std::size_t>(i + half)];
        const double x = a, y = b;
        a = x * cs - y * sn;
        b = y * cs + x * sn;
      }
    }
    double s = 0, size = 0;
    for (int i = 0; i < c.d; ++i) {
      const double term = static_cast<double>(q[i]) * key[static_cast<std::size_t>(i)];
      s += term;
      size += std::abs(term);
    }
    const double scale = 1 / std::sqrt(static_cast<double>(c.d));
    score.push_back(s * scale);
    double q_norm = 0;
    for (int i = 0; i < c.d; ++i) q_norm += static_cast<double>(q[i]) * static_cast<double>(q[i]);
    worst = std::max(
        worst, scale * (size * (q_error + (c.d + 4) * eps) + std::sqrt(norm * q_norm) * k_error));
  }
  const double top = *std::max_element(score.begin(), score.end());
  double sum = 0;
  for (const double s : score) sum += std::exp(s - top);
  for (const double s : score) r.p.push_back(std::exp(s - top) / sum);
  // The subtraction of the maximum rounds a difference as large as the scores themselves.
  double range = 0;
  for (const double s : score) range = std::max(range, top - s);
  const double exponent = 2 * worst + 4 * eps * (range + std::abs(top));
  r.p_bound = std::expm1(exponent) + 2 * (p_error + 5e-7) + 64 * eps;
  const double relative = r.p_bound + static_cast<double>(seen + 64) * eps;
  for (int i = 0; i < c.d; ++i) {
    double o = 0, size = 0;
    for (std::int64_t row = 0; row < seen; ++row) {
      const auto v = static_cast<double>(cache.get(false, head, row, i));
      o += r.p[static_cast<std::size_t>(row)] * v;
      size += r.p[static_cast<std::size_t>(row)] * std::abs(v);
    }
    r.out.push_back(o);
    // The sum of probabilities carries the same relative error as the products.
    r.bound.push_back(2 * relative * size + 1e-30);
  }
  return r;
}

}  // namespace triforce::cpu::test
