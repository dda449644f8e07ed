// Portable tiles: plain C++ that the compiler vectorises for the baseline of the architecture.
#include "core/elements.h"
#include "cpu/linear_kernels.h"
#include "cpu/quantised_panel.h"

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

// Codes of a group become floats for 16 columns at a time, and then meet all rows.
template <int kBits, int R>
void code_tile(const std::byte* w, const std::byte* x, std::int64_t x_stride_bytes,
               std::int64_t steps, float* acc, TileTurn /*turn*/) {
  constexpr int kPlaces = 32 / kBits;
  for (std::int64_t s = 0; s < steps; ++s, w += kQuantisedStepBytes<kBits>) {
    const auto* scales = reinterpret_cast<const std::uint16_t*>(w);
    const auto* words = reinterpret_cast<const std::uint32_t*>(w + kScaleBytes);
    for (int c0 = 0; c0 < kPanel; c0 += kGroup) {
      float a[R][kGroup] = {};
      for (int k = 0; k < kWeightGroup; k += kPlaces) {
        const std::uint32_t* const row = words + k / kPlaces * kPanel + c0;
        for (int place = 0; place < kPlaces; ++place) {
          float column[kGroup];
          for (int c = 0; c < kGroup; ++c) {
            const std::uint32_t top = row[c] << (32 - kBits - kBits * place);
            column[c] = static_cast<float>(static_cast<std::int32_t>(top) >> (32 - kBits));
          }
          const auto depth = s * kWeightGroup + k + depth_in_word<kBits>(place);
          for (int r = 0; r < R; ++r) {
            const float xr = reinterpret_cast<const float*>(x + r * x_stride_bytes)[depth];
            for (int c = 0; c < kGroup; ++c) a[r][c] += xr * column[c];
          }
        }
      }
      for (int r = 0; r < R; ++r) {
        for (int c = 0; c < kGroup; ++c) {
          acc[r * kPanel + c0 + c] += a[r][c] * F16::load(scales[c0 + c]);
        }
      }
    }
  }
}

template <int kBits>
TileSet code_tiles(XFormat format) {
  TileSet set{.x_format = format, .k_per_step = kWeightGroup, .max_rows = 2};
  set.tiles[1] = code_tile<kBits, 1>;
  set.tiles[2] = code_tile<kBits, 2>;
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
      .codes = {code_tiles<8>(XFormat::kF32), code_tiles<4>(XFormat::kF32)},
      .codes_bf16 = {code_tiles<8>(XFormat::kRoundedF32), code_tiles<4>(XFormat::kRoundedF32)},
      .to_bf16 = to_bf16,
      .round_bf16 = round_bf16,
  };
  return kKernels;
}

}  // namespace triforce::cpu
