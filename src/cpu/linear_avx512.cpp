// AVX-512 tiles, with and without vdpbf16ps: R x 64 accumulators in up to 28 of 32 registers, the
// weights one register at a time, x broadcast from memory.
#include <immintrin.h>

#include "cpu/linear_kernels.h"

#define TF_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")))
#define TF_AVX512_BF16 \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c")))

namespace triforce::cpu {
namespace {

constexpr int kMaxRows = 7;
// Bytes ahead of the load: past the end of a page, where the hardware prefetcher stops.
constexpr std::int64_t kAhead = 4096;

enum class Kind : std::uint8_t { kF32, kF16, kBf16 };

template <Kind kKind, int R>
TF_AVX512 void tile(const std::byte* w, const std::byte* x, std::int64_t x_stride_bytes,
                    std::int64_t steps, float* acc, bool prefetch) {
  constexpr std::int64_t kStepBytes = kKind == Kind::kF16 ? 128 : 256;
  __m512 a[R][4];
  const float* xr[R];
  for (int r = 0; r < R; ++r) {
    xr[r] = reinterpret_cast<const float*>(x + r * x_stride_bytes);
    for (int j = 0; j < 4; ++j) a[r][j] = _mm512_loadu_ps(acc + r * kPanel + 16 * j);
  }
  const std::int64_t ahead = prefetch ? kAhead : 0;
  for (std::int64_t s = 0; s < steps; ++s, w += kStepBytes) {
    for (std::int64_t line = 0; line < kStepBytes; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(w + ahead + line), _MM_HINT_T0);
    }
    for (int j = 0; j < 4; ++j) {
      if constexpr (kKind == Kind::kBf16) {
        const __m512i pair = _mm512_loadu_si512(w + 64 * j);
        const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
        const __m512 odd = _mm512_castsi512_ps(
            _mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
        for (int r = 0; r < R; ++r) {
          a[r][j] = _mm512_fmadd_ps(_mm512_set1_ps(xr[r][2 * s]), even, a[r][j]);
        }
        for (int r = 0; r < R; ++r) {
          a[r][j] = _mm512_fmadd_ps(_mm512_set1_ps(xr[r][2 * s + 1]), odd, a[r][j]);
        }
      } else {
        __m512 column;
        if constexpr (kKind == Kind::kF32) {
          column = _mm512_loadu_ps(reinterpret_cast<const float*>(w + 64 * j));
        } else {
          column =
              _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32 * j)));
        }
        for (int r = 0; r < R; ++r) {
          a[r][j] = _mm512_fmadd_ps(_mm512_set1_ps(xr[r][s]), column, a[r][j]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < 4; ++j) _mm512_storeu_ps(acc + r * kPanel + 16 * j, a[r][j]);
  }
}

template <int R>
TF_AVX512_BF16 void tile_dot(const std::byte* w, const std::byte* x, std::int64_t x_stride_bytes,
                             std::int64_t steps, float* acc, bool prefetch) {
  __m512 a[R][4];
  const std::int32_t* xr[R];
  for (int r = 0; r < R; ++r) {
    xr[r] = reinterpret_cast<const std::int32_t*>(x + r * x_stride_bytes);
    for (int j = 0; j < 4; ++j) a[r][j] = _mm512_loadu_ps(acc + r * kPanel + 16 * j);
  }
  const std::int64_t ahead = prefetch ? kAhead : 0;
  for (std::int64_t s = 0; s < steps; ++s, w += 256) {
    for (int line = 0; line < 256; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(w + ahead + line), _MM_HINT_T0);
    }
    for (int j = 0; j < 4; ++j) {
      const __m512i column = _mm512_loadu_si512(w + 64 * j);
      for (int r = 0; r < R; ++r) {
        // The broadcast as a memory operand: as registers the seven of them would spill.
        asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(a[r][j]) : "v"(column), "m"(xr[r][s]));
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < 4; ++j) _mm512_storeu_ps(acc + r * kPanel + 16 * j, a[r][j]);
  }
}

template <Kind kKind>
TileSet tile_set(XFormat format) {
  return {.x_format = format,
          .k_per_step = kKind == Kind::kBf16 ? 2 : 1,
          .max_rows = kMaxRows,
          .tiles = {nullptr, tile<kKind, 1>, tile<kKind, 2>, tile<kKind, 3>, tile<kKind, 4>,
                    tile<kKind, 5>, tile<kKind, 6>, tile<kKind, 7>}};
}

TF_AVX512 inline __m512i rounded_bits(__m512 x) {
  const __m512i b = _mm512_castps_si512(x);
  const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(b, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(up, nan, b, _mm512_set1_epi32(0x400000));
}

TF_AVX512 inline __mmask16 lanes(std::int64_t left) {
  return left >= 16 ? static_cast<__mmask16>(0xffff)
                    : static_cast<__mmask16>((1U << static_cast<unsigned>(left)) - 1U);
}

TF_AVX512 void to_bf16(const float* x, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    const __m512i bits = _mm512_srli_epi32(rounded_bits(_mm512_maskz_loadu_ps(m, x + i)), 16);
    _mm256_mask_storeu_epi16(out + i, m, _mm512_cvtepi32_epi16(bits));
  }
}

TF_AVX512 void round_bf16(const float* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    const __m512i bits = _mm512_and_si512(rounded_bits(_mm512_maskz_loadu_ps(m, x + i)),
                                          _mm512_set1_epi32(static_cast<int>(0xffff0000U)));
    _mm512_mask_storeu_ps(out + i, m, _mm512_castsi512_ps(bits));
  }
}

TF_AVX512 void from_f16(const std::uint16_t* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    _mm512_mask_storeu_ps(out + i, m, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, x + i)));
  }
}

}  // namespace

const LinearKernels& avx512_kernels() {
  static const LinearKernels kKernels = {
      .f32 = tile_set<Kind::kF32>(XFormat::kF32),
      .f16 = tile_set<Kind::kF16>(XFormat::kF32),
      .bf16 = tile_set<Kind::kBf16>(XFormat::kRoundedF32),
      .to_bf16 = to_bf16,
      .round_bf16 = round_bf16,
      .from_f16 = from_f16,
  };
  return kKernels;
}

const LinearKernels& avx512_bf16_kernels() {
  static const LinearKernels kKernels = [] {
    LinearKernels k = avx512_kernels();
    k.bf16 = {.x_format = XFormat::kBf16,
              .k_per_step = 2,
              .max_rows = kMaxRows,
              .tiles = {nullptr, tile_dot<1>, tile_dot<2>, tile_dot<3>, tile_dot<4>, tile_dot<5>,
                        tile_dot<6>, tile_dot<7>}};
    return k;
  }();
  return kKernels;
}

}  // namespace triforce::cpu
