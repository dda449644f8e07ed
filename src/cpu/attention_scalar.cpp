// Attention kernels without instruction-set extensions: the reference the others are tested
// against.
#include "core/float16.h"
#include "cpu/attention_exp2.h"
#include "cpu/attention_kernels.h"

#define TF_ISA

namespace triforce::cpu {
namespace {

struct ScalarVector {
  struct Vec {
    float x[kLanes];
  };
  static constexpr int kMaxRows = 2, kMaxPairRows = 2;
  static constexpr int blocks(int) { return 1; }

  static Vec set1(float s) {
    Vec r;
    for (float& x : r.x) x = s;
    return r;
  }
  static Vec load(const float* p) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.x[i] = p[i];
    return r;
  }
  static Vec load(const std::uint16_t* p) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.x[i] = f16_to_f32(p[i]);
    return r;
  }
  static void load_pairs(const std::uint16_t* p, Vec& even, Vec& odd) {
    for (int i = 0; i < kLanes; ++i) {
      even.x[i] = bf16_to_f32(p[2 * i]);
      odd.x[i] = bf16_to_f32(p[2 * i + 1]);
    }
  }
  // Code `place` of each of 16 words (quantised_panel.h).
  template <int kBits>
  static Vec codes(const std::uint32_t* p, int place) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) {
      const std::uint32_t top = p[i] << (32 - kBits - kBits * place);
      r.x[i] = static_cast<float>(static_cast<std::int32_t>(top) >> (32 - kBits));
    }
    return r;
  }
  static void store(float* p, const Vec& a) {
    for (int i = 0; i < kLanes; ++i) p[i] = a.x[i];
  }
  static void store(std::uint16_t* p, const Vec& a) {
    for (int i = 0; i < kLanes; ++i) p[i] = f32_to_f16(a.x[i]);
  }
  static void store_pairs(std::uint16_t* p, const Vec& even, const Vec& odd) {
    for (int i = 0; i < kLanes; ++i) {
      p[2 * i] = f32_to_bf16(even.x[i]);
      p[2 * i + 1] = f32_to_bf16(odd.x[i]);
    }
  }
  template <class Op>
  static Vec each(const Vec& a, const Vec& b, const Op& op) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.x[i] = op(a.x[i], b.x[i]);
    return r;
  }
  static Vec add(const Vec& a, const Vec& b) {
    return each(a, b, [](float x, float y) { return x + y; });
  }
  static Vec sub(const Vec& a, const Vec& b) {
    return each(a, b, [](float x, float y) { return x - y; });
  }
  static Vec mul(const Vec& a, const Vec& b) {
    return each(a, b, [](float x, float y) { return x * y; });
  }
  static Vec max(const Vec& a, const Vec& b) {
    return each(a, b, [](float x, float y) { return x > y ? x : y; });
  }
  static Vec fma(const Vec& a, const Vec& b, const Vec& c) {  // rounded twice at this level
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.x[i] = a.x[i] * b.x[i] + c.x[i];
    return r;
  }
  static Vec exp2(const Vec& a) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.x[i] = exp2_scalar(a.x[i]);
    return r;
  }
  static float max_lane(const Vec& a) {
    float m = a.x[0];
    for (const float x : a.x) m = x > m ? x : m;
    return m;
  }
  static float sum_lanes(const Vec& a) {
    float sum = 0;
    for (const float x : a.x) sum += x;
    return sum;
  }
  // The first `count` lanes of a, -infinity in the others.
  static Vec keep(const Vec& a, int count) {
    Vec r = a;
    for (int i = 0; i < kLanes; ++i) {
      if (i >= count) r.x[i] = -__builtin_inff();
    }
    return r;
  }
  static void sums_of_8(const Vec* x, float* out) {
    for (int c = 0; c < kTileKeys / 8; ++c) {
      const float* p = x[c / 2].x + c % 2 * 8;
      out[c] = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
    }
  }
  // out[8][kLanes]: lane t of row j is base[rows[t] * stride + j].
  static void transpose(const float* base, const std::int32_t* rows, int stride, float* out) {
    for (int t = 0; t < kLanes; ++t) {
      const float* from = base + static_cast<std::int64_t>(rows[t]) * stride;
      for (int j = 0; j < 8; ++j) out[j * kLanes + t] = from[j];
    }
  }
};

}  // namespace
}  // namespace triforce::cpu

#include "cpu/attention_codes.h"

namespace triforce::cpu {

const AttentionKernels& attention_kernels_scalar(DType type) {
  return float_kernels<ScalarVector>(type);
}

}  // namespace triforce::cpu
