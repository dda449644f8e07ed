// 16 floats in four NEON registers, for the kernels of attention_tile.h and linear_tile.h. Included
// by the NEON sources only, after TF_ISA.
#pragma once
#include <arm_neon.h>

#include "cpu/attention_exp2.h"
#include "cpu/attention_kernels.h"
#include "cpu/workers.h"

#define TF_NEON TF_ISA static inline __attribute__((always_inline))

namespace triforce::cpu {
namespace {

struct NeonVector {
  struct Vec {
    float32x4_t a, b, c, d;  // lanes 0..3, 4..7, 8..11 and 12..15
  };
  static constexpr int kRegisters = 8;
  static constexpr int kMaxRows = 6, kMaxPairRows = 4;
  static constexpr int blocks(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

  TF_NEON Vec set1(float s) {
    const float32x4_t q = vdupq_n_f32(s);
    return {q, q, q, q};
  }
  TF_NEON Vec load(const float* p) {
    return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
  }
  TF_NEON Vec load(const std::uint16_t* p) {
    const float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(p));
    const float16x8_t high = vreinterpretq_f16_u16(vld1q_u16(p + 8));
    return {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
            vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)};
  }
  // Four pairs of bf16: the even ones lie in the lower halves.
  TF_NEON void split(uint32x4_t pairs, float32x4_t& even, float32x4_t& odd) {
    even = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    odd = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000U)));
  }
  TF_NEON uint32x4_t load_words(const std::uint16_t* p) {
    return vreinterpretq_u32_u16(vld1q_u16(p));
  }
  TF_NEON void load_pairs(const std::uint16_t* p, Vec& even, Vec& odd) {
    split(load_words(p), even.a, odd.a);
    split(load_words(p + 8), even.b, odd.b);
    split(load_words(p + 16), even.c, odd.c);
    split(load_words(p + 24), even.d, odd.d);
  }
  template <int kBits>
  TF_NEON float32x4_t quarter_codes(const std::uint32_t* p, int place) {
    const uint32x4_t words = vld1q_u32(p);
    const auto top = vreinterpretq_s32_u32(words << (32 - kBits - kBits * place));
    return vcvtq_f32_s32(top >> (32 - kBits));
  }
  // Code `place` of each of 16 words (quantised_panel.h).
  template <int kBits>
  TF_NEON Vec codes(const std::uint32_t* p, int place) {
    return {quarter_codes<kBits>(p, place), quarter_codes<kBits>(p + 4, place),
            quarter_codes<kBits>(p + 8, place), quarter_codes<kBits>(p + 12, place)};
  }
  TF_NEON void store(float* p, Vec x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
  }
  TF_NEON void store(std::uint16_t* p, Vec x) {
    vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b)));
    vst1q_u16(p + 8, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.c), x.d)));
  }
  // The nearest bf16, ties to even, in the upper half of each lane; NaN stays NaN.
  TF_NEON uint32x4_t rounded(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vandq_u32(vbslq_u32(vceqq_f32(x, x), up, quiet), vdupq_n_u32(0xffff0000U));
  }
  TF_NEON void store_words(std::uint16_t* p, float32x4_t even, float32x4_t odd) {
    vst1q_u16(p, vreinterpretq_u16_u32(vsriq_n_u32(rounded(odd), rounded(even), 16)));
  }
  TF_NEON void store_pairs(std::uint16_t* p, Vec even, Vec odd) {
    store_words(p, even.a, odd.a);
    store_words(p + 8, even.b, odd.b);
    store_words(p + 16, even.c, odd.c);
    store_words(p + 24, even.d, odd.d);
  }
  TF_NEON Vec add(Vec x, Vec y) {
    return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)};
  }
  TF_NEON Vec sub(Vec x, Vec y) {
    return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c), vsubq_f32(x.d, y.d)};
  }
  TF_NEON Vec mul(Vec x, Vec y) {
    return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)};
  }
  TF_NEON Vec max(Vec x, Vec y) {
    return {vmaxq_f32(x.a, y.a), vmaxq_f32(x.b, y.b), vmaxq_f32(x.c, y.c), vmaxq_f32(x.d, y.d)};
  }
  TF_NEON Vec fma(Vec x, Vec y, Vec z) {
    return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
            vfmaq_f32(z.d, x.d, y.d)};
  }
  TF_NEON float32x4_t exp2_quarter(float32x4_t x) {
    const float32x4_t n = vrndnq_f32(x);
    const float32x4_t f = vsubq_f32(x, n);
    float32x4_t p = vfmaq_f32(vdupq_n_f32(kExp2C4), vdupq_n_f32(kExp2C5), f);
    p = vfmaq_f32(vdupq_n_f32(kExp2C3), p, f);
    p = vfmaq_f32(vdupq_n_f32(kExp2C2), p, f);
    p = vfmaq_f32(vdupq_n_f32(kExp2C1), p, f);
    p = vfmaq_f32(vdupq_n_f32(1.0F), p, f);
    // A NaN becomes exponent 0 here: p stays NaN.
    const int32x4_t exponent = vshlq_n_s32(vcvtnq_s32_f32(n), 23);
    const int32x4_t scaled = vaddq_s32(vreinterpretq_s32_f32(p), exponent);
    const uint32x4_t low = vcltq_f32(x, vdupq_n_f32(kExp2Lowest));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_s32(scaled), low));
  }
  TF_NEON Vec exp2(Vec x) {
    return {exp2_quarter(x.a), exp2_quarter(x.b), exp2_quarter(x.c), exp2_quarter(x.d)};
  }
  TF_NEON float max_lane(Vec x) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.b), vmaxq_f32(x.c, x.d)));
  }
  TF_NEON float sum_lanes(Vec x) {
    return vaddvq_f32(vaddq_f32(vaddq_f32(x.a, x.b), vaddq_f32(x.c, x.d)));
  }
  TF_NEON float32x4_t keep_quarter(float32x4_t x, int count) {
    constexpr std::int32_t kLane[] = {0, 1, 2, 3};
    const uint32x4_t kept = vcltq_s32(vld1q_s32(kLane), vdupq_n_s32(count));
    return vbslq_f32(kept, x, vdupq_n_f32(-__builtin_inff()));
  }
  // The first `count` lanes of x, -infinity in the others.
  TF_NEON Vec keep(Vec x, int count) {
    return {keep_quarter(x.a, count), keep_quarter(x.b, count - 4), keep_quarter(x.c, count - 8),
            keep_quarter(x.d, count - 12)};
  }
  TF_NEON void sums_of_8(const Vec* x, float* out) {
    for (int i = 0; i < 4; i += 2) {
      const Vec &u = x[i], &v = x[i + 1];
      const float32x4_t first = vpaddq_f32(vpaddq_f32(u.a, u.b), vpaddq_f32(u.c, u.d));
      const float32x4_t second = vpaddq_f32(vpaddq_f32(v.a, v.b), vpaddq_f32(v.c, v.d));
      vst1q_f32(out + 2 * i, vpaddq_f32(first, second));
    }
  }
  // out[8][kLanes]: lane t of row j is base[rows[t] * stride + j]. Four by four at a time.
  TF_NEON void transpose(const float* base, const std::int32_t* rows, int stride, float* out) {
    for (int t = 0; t < kLanes; t += 4) {
      for (int j = 0; j < 8; j += 4) {
        float32x4_t r[4];
        for (int i = 0; i < 4; ++i) {
          r[i] = vld1q_f32(base + static_cast<std::int64_t>(rows[t + i]) * stride + j);
        }
        const auto even = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
        const auto odd = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
        const auto even2 = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
        const auto odd2 = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
        float* to = out + j * kLanes + t;
        vst1q_f32(to, vreinterpretq_f32_f64(vtrn1q_f64(even, even2)));
        vst1q_f32(to + kLanes, vreinterpretq_f32_f64(vtrn1q_f64(odd, odd2)));
        vst1q_f32(to + 2 * kLanes, vreinterpretq_f32_f64(vtrn2q_f64(even, even2)));
        vst1q_f32(to + 3 * kLanes, vreinterpretq_f32_f64(vtrn2q_f64(odd, odd2)));
      }
    }
  }
};

}  // namespace
}  // namespace triforce::cpu
