// Portable tiles: plain C++ that the compiler vectorises for the baseline of the architecture.
#include "core/elements.h"
#include "cpu/linear_kernels.h"

namespace triforce::cpu {
namespace {

constexpr int kGroup = 16;  // columns whose accumulators are kept in registers

template <class Element, int R>
void tile(const std::byte* w, const std::byte* x, std::int64_t x_stride_bytes, std::int64_t steps,
          float* acc, TileTurn /*turn*/) {
  constexpr int kPair = Element::kType == DType::kBF16 ? 2 : 1;
  const auto* weights = reinterpret_cast<const typename Element::Stored*>(w);
  for (int c0 = 0; c0 < kPanel; c0 += kGroup) {
    float a[R][kGroup];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < kGroup; ++c) a[r][c] = acc[r * kPanel + c0 + c];
    }
    for (std::int64_t s = 0; s < steps; ++s) {
      const auto* ws = weights + (s * kPanel + c0) * kPair;
      for (int p = 0; p < kPair; ++p) {
        float column[kGroup];
        for (int c = 0; c < kGroup; ++c) column[c] = Element::load(ws[c * kPair + p]);
        for (int r = 0; r < R; ++r) {
          const float xr = reinterpret_cast<const float*>(x + r * x_stride_bytes)[s * kPair + p];
          for (int c = 0; c < kGroup; ++c) a[r][c] += xr * column[c];
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < kGroup; ++c) acc[r * kPanel + c0 + c] = a[r][c];
    }
  }
}

template <class Element>
TileSet tile_set(XFormat format) {
  TileSet set{
      .x_format = format, .k_per_step = Element::kType == DType::kBF16 ? 2 : 1, .max_rows = 2};
  set.tiles[1] = tile<Element, 1>;
  set.tiles[2] = tile<Element, 2>;
  return set;
}

void to_bf16(const float* x, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = f32_to_bf16(x[i]);
}

void round_bf16(const float* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(f32_to_bf16(x[i]));
}

}  // namespace

const LinearKernels& scalar_kernels() {
  static const LinearKernels kKernels = {
      .f32 = tile_set<F32>(XFormat::kF32),
      .f16 = tile_set<F16>(XFormat::kF32),
      .bf16 = tile_set<Bf16>(XFormat::kRoundedF32),
      .to_bf16 = to_bf16,
      .round_bf16 = round_bf16,
  };
  return kKernels;
}

}  // namespace triforce::cpu
