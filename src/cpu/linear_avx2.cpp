// AVX2 + FMA + F16C tiles: 16 registers hold R x (8 * kWide) accumulators, so wide groups of
// columns go with few rows and narrow ones with many.
#include <immintrin.h>

#include "cpu/linear_kernels.h"

#define TF_AVX2 __attribute__((target("avx2,fma,f16c")))

namespace triforce::cpu {
namespace {

constexpr int kMaxRows = 6;
constexpr std::int64_t kAhead = 4096;

enum class Kind : std::uint8_t { kF32, kF16, kBf16 };

// Columns [0, 8 * kWide) of a panel.
template <Kind kKind, int R, int kWide>
TF_AVX2 inline void group(const std::byte* w, const float* const* xr, std::int64_t steps,
                          float* acc, std::int64_t ahead) {
  constexpr std::int64_t kStepBytes = kKind == Kind::kF16 ? 128 : 256;
  __m256 a[R][kWide];
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < kWide; ++j) a[r][j] = _mm256_loadu_ps(acc + r * kPanel + 8 * j);
  }
  for (std::int64_t s = 0; s < steps; ++s, w += kStepBytes) {
    for (std::int64_t line = 0; line < kStepBytes / 8 * kWide; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(w + ahead + line), _MM_HINT_T0);
    }
    if constexpr (kKind == Kind::kBf16) {
      __m256i pair[kWide];
      for (int j = 0; j < kWide; ++j) {
        pair[j] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32 * j));
      }
      for (int r = 0; r < R; ++r) {
        const __m256 even = _mm256_broadcast_ss(xr[r] + 2 * s);
        for (int j = 0; j < kWide; ++j) {
          const __m256 column = _mm256_castsi256_ps(_mm256_slli_epi32(pair[j], 16));
          a[r][j] = _mm256_fmadd_ps(even, column, a[r][j]);
        }
      }
      for (int r = 0; r < R; ++r) {
        const __m256 odd = _mm256_broadcast_ss(xr[r] + 2 * s + 1);
        for (int j = 0; j < kWide; ++j) {
          const __m256 column = _mm256_castsi256_ps(
              _mm256_and_si256(pair[j], _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
          a[r][j] = _mm256_fmadd_ps(odd, column, a[r][j]);
        }
      }
    } else {
      __m256 column[kWide];
      for (int j = 0; j < kWide; ++j) {
        if constexpr (kKind == Kind::kF32) {
          column[j] = _mm256_loadu_ps(reinterpret_cast<const float*>(w + 32 * j));
        } else {
          column[j] =
              _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 16 * j)));
        }
      }
      for (int r = 0; r < R; ++r) {
        const __m256 xs = _mm256_broadcast_ss(xr[r] + s);
        for (int j = 0; j < kWide; ++j) a[r][j] = _mm256_fmadd_ps(xs, column[j], a[r][j]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < kWide; ++j) _mm256_storeu_ps(acc + r * kPanel + 8 * j, a[r][j]);
  }
}

template <Kind kKind, int R>
TF_AVX2 void tile(const std::byte* w, const std::byte* x, std::int64_t x_stride_bytes,
                  std::int64_t steps, float* acc, bool prefetch) {
  constexpr int kWide = R == 1 ? 8 : R <= 3 ? 4 : 2;
  constexpr std::int64_t kGroupBytes = (kKind == Kind::kF16 ? 16 : 32) * kWide;
  const float* xr[R];
  for (int r = 0; r < R; ++r) xr[r] = reinterpret_cast<const float*>(x + r * x_stride_bytes);
  for (int g = 0; g < 8 / kWide; ++g) {
    group<kKind, R, kWide>(w + g * kGroupBytes, xr, steps, acc + g * 8 * kWide,
                           prefetch ? kAhead : 0);
  }
}

template <Kind kKind>
TileSet tile_set(XFormat format) {
  return {.x_format = format,
          .k_per_step = kKind == Kind::kBf16 ? 2 : 1,
          .max_rows = kMaxRows,
          .tiles = {nullptr, tile<kKind, 1>, tile<kKind, 2>, tile<kKind, 3>, tile<kKind, 4>,
                    tile<kKind, 5>, tile<kKind, 6>}};
}

TF_AVX2 void from_f16(const std::uint16_t* x, std::int64_t n, float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(h));
  }
  if (i < n) scalar_kernels().from_f16(x + i, n - i, out + i);
}

}  // namespace

const LinearKernels& avx2_kernels() {
  static const LinearKernels kKernels = [] {
    LinearKernels k = scalar_kernels();
    k.f32 = tile_set<Kind::kF32>(XFormat::kF32);
    k.f16 = tile_set<Kind::kF16>(XFormat::kF32);
    k.bf16 = tile_set<Kind::kBf16>(XFormat::kRoundedF32);
    k.from_f16 = from_f16;
    return k;
  }();
  return kKernels;
}

}  // namespace triforce::cpu
