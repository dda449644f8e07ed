// Columns of a table for 16 of its rows, in AVX registers. Included after TF_ISA.
#pragma once
#include <immintrin.h>

#include "cpu/attention_kernels.h"

namespace triforce::cpu {
namespace {

// out[8][kLanes]: lane t of row j is base[rows[t] * stride + j]. Eight by eight at a time: gathers
// take several times as long.
TF_ISA inline void transpose_8x16(const float* base, const std::int32_t* rows, int stride,
                                  float* out) {
  for (int half = 0; half < kLanes; half += 8) {
    __m256 r[8], u[8], w[8];
    for (int t = 0; t < 8; ++t) {
      r[t] = _mm256_loadu_ps(base + static_cast<std::int64_t>(rows[half + t]) * stride);
    }
    for (int t = 0; t < 8; t += 2) {
      u[t] = _mm256_unpacklo_ps(r[t], r[t + 1]);
      u[t + 1] = _mm256_unpackhi_ps(r[t], r[t + 1]);
    }
    for (int t = 0; t < 8; t += 4) {
      w[t] = _mm256_shuffle_ps(u[t], u[t + 2], 0x44);
      w[t + 1] = _mm256_shuffle_ps(u[t], u[t + 2], 0xEE);
      w[t + 2] = _mm256_shuffle_ps(u[t + 1], u[t + 3], 0x44);
      w[t + 3] = _mm256_shuffle_ps(u[t + 1], u[t + 3], 0xEE);
    }
    for (int j = 0; j < 4; ++j) {
      _mm256_storeu_ps(out + j * kLanes + half, _mm256_permute2f128_ps(w[j], w[j + 4], 0x20));
      _mm256_storeu_ps(out + (j + 4) * kLanes + half, _mm256_permute2f128_ps(w[j], w[j + 4], 0x31));
    }
  }
}

}  // namespace
}  // namespace triforce::cpu
