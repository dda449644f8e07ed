// Tests: tests/cpu/linear_test.cpp, tests/backend/conformance_test.cpp
#include "cpu/linear.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/elements.h"
#include "core/quantise.h"
#include "core/rounding.h"
#include "cpu/linear_kernels.h"
#include "cpu/quantised_panel.h"
#include "cpu/scratch.h"

namespace triforce::cpu {
namespace {

// Weight bytes times row tiles below which another thread costs more than it saves.
constexpr std::int64_t kBytesPerThread = 64 * 1024;
// Elements of an embedding per thread below which the same holds.
constexpr std::int64_t kElementsPerThread = 16 * 1024;
// Columns unpacked at a time where oneDNN cannot read the panels.
constexpr std::int64_t kUnpackColumns = 256;
// Bytes between converted rows of x where a tile reads them side by side: without it those of a
// width of 4,096 fall into one set of the first-level cache.
constexpr std::int64_t kRowGap = 64;

std::int64_t padded_depth(std::int64_t cols, WeightFormat format) {
  return round_up(cols, format.is_quantised()         ? kWeightGroup
                        : format.type == DType::kBF16 ? 32
                                                      : 16);
}

// Of whole groups, or of any depth that is not quantised.
std::int64_t depth_bytes(std::int64_t depth, WeightFormat format) {
  switch (format.quantisation) {
    case Quantisation::kInt8:
      return depth / kWeightGroup * kQuantisedStepBytes<8>;
    case Quantisation::kInt4:
      return depth / kWeightGroup * kQuantisedStepBytes<4>;
    case Quantisation::kNone:
      break;
  }
  return depth * kPanel * size_of(format.type);
}

std::int64_t panel_bytes(std::int64_t cols, WeightFormat format) {
  return depth_bytes(padded_depth(cols, format), format);
}

const TileSet& tiles_for(const LinearKernels& kernels, WeightFormat format) {
  if (format.is_quantised()) {
    const CodeTiles& codes = format.type == DType::kBF16 ? kernels.codes_bf16 : kernels.codes;
    return format.quantisation == Quantisation::kInt8 ? codes.int8 : codes.int4;
  }
  switch (format.type) {
    case DType::kF32:
      return kernels.f32;
    case DType::kF16:
      return kernels.f16;
    case DType::kBF16:
      return kernels.bf16;
    case DType::kI32:
      break;
  }
  TF_CHECK(false, "linear: weights of type {}", to_string(format.type));
}

Widen widen_for(const LinearKernels& kernels, DType dtype) {
  return dtype == DType::kF32   ? kernels.widen_f32
         : dtype == DType::kF16 ? kernels.widen_f16
                                : kernels.widen_bf16;
}

// x as the kernels want it.
struct Rows {
  const std::byte* data = nullptr;
  std::int64_t stride_bytes = 0;  // to the next row, or to the next group
  std::int64_t count = 0;
  std::int64_t most_in_group = 1;

  std::int64_t in_group(std::int64_t row) const {
    return std::min(most_in_group, count - row / most_in_group * most_in_group);
  }
  // Where row `row` begins, the first of its group, `depth_bytes` behind each row's first element.
  const std::byte* at(std::int64_t row, std::int64_t depth_bytes) const {
    return data + row / most_in_group * stride_bytes + depth_bytes * in_group(row);
  }
};

// Rows of bf16 in groups, see XFormat::kBf16Tiles.
Rows tile_rows(const Workers& workers, const LinearKernels& kernels, TensorView x,
               std::int64_t width, Scratch& scratch) {
  const std::int64_t count = x.shape[0], cols = x.shape[1];
  auto* const data = scratch.take<std::byte>(count * width * 2);
  const Rows rows{data, kTileGroup * width * 2, count, kTileGroup};
  const auto* source = static_cast<const float*>(x.data);
  const auto convert_row = [&](std::int64_t r, int) {
    const std::int64_t step = rows.in_group(r) * kTileDepth;
    auto* to = reinterpret_cast<std::uint16_t*>(data + r / kTileGroup * rows.stride_bytes) +
               r % kTileGroup * kTileDepth;
    for (std::int64_t k = 0; k < width; k += kTileDepth, to += step) {
      const std::int64_t n = std::clamp<std::int64_t>(cols - k, 0, kTileDepth);
      kernels.to_bf16(source + r * x.stride[0] + k, n, to);
      std::fill(to + n, to + kTileDepth, std::uint16_t{0});
    }
  };
  if (count <= kMaxBatchInvariantRows) {
    for (std::int64_t r = 0; r < count; ++r) convert_row(r, 0);
  } else {
    parallel_for(workers, count, convert_row);
  }
  return rows;
}

// Rows that are converted become `width` wide; the padding is zero: 0 * 0 in the padded weights.
Rows prepare(const Workers& workers, const LinearKernels& kernels, XFormat format, TensorView x,
             std::int64_t width, Scratch& scratch) {
  if (format == XFormat::kBf16Tiles) return tile_rows(workers, kernels, x, width, scratch);
  const std::int64_t rows = x.shape[0], cols = x.shape[1];
  const auto* source = static_cast<const float*>(x.data);
  if (format == XFormat::kF32 && width == cols) {
    return {reinterpret_cast<const std::byte*>(source), x.stride[0] * size_of(DType::kF32), rows};
  }
  const std::int64_t size = format == XFormat::kBf16 ? 2 : 4;
  const bool few = rows <= kMaxBatchInvariantRows;
  const std::int64_t stride = width * size + (few ? kRowGap : 0);
  auto* to = scratch.take<std::byte>(rows * stride);
  const auto convert_row = [&](std::int64_t r, int) {
    std::byte* row = to + r * stride;
    const float* from = source + r * x.stride[0];
    if (format == XFormat::kBf16) {
      kernels.to_bf16(from, cols, reinterpret_cast<std::uint16_t*>(row));
    } else if (format == XFormat::kF32) {
      std::memcpy(row, from, static_cast<std::size_t>(cols * size));
    } else {
      kernels.round_bf16(from, cols, reinterpret_cast<float*>(row));
    }
    std::memset(row + cols * size, 0, static_cast<std::size_t>((width - cols) * size));
  };
  if (few) {
    for (std::int64_t r = 0; r < rows; ++r) convert_row(r, 0);
  } else {
    parallel_for(workers, rows, convert_row);
  }
  return {to, stride, rows};
}

// What rows of x are padded to. Those of f32 need it for whole groups alone.
std::int64_t x_width(std::int64_t cols, WeightFormat format, XFormat x) {
  if (format.is_quantised()) return round_up(cols, kWeightGroup);
  return x == XFormat::kF32 ? cols : round_up(cols, 32);
}

void add_to(float* out, const float* acc, std::int64_t n, bool accumulate) {
  if (!accumulate) {
    std::memcpy(out, acc, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) out[i] += acc[i];
}

// Rows that read a panel once: as many sums are held.
constexpr std::int64_t kPanelRows = 128;
static_assert(kPanelRows % kTileGroup == 0);

// Up to kPanelRows rows from `first` on times one panel.
void run_panel(const TileSet& set, const Matrix& w, std::int64_t panel, const Rows& x,
               std::int64_t first, std::int64_t rows, float* out, std::int64_t out_stride,
               bool accumulate) {
  const std::int64_t k_per_step = set.k_per_step;
  const std::int64_t steps = (w.cols + k_per_step - 1) / k_per_step;
  const std::int64_t step_bytes = depth_bytes(k_per_step, w.format);
  const bool halves = set.x_format == XFormat::kBf16 || set.x_format == XFormat::kBf16Tiles;
  const std::int64_t x_step_bytes = k_per_step * (halves ? 2 : std::int64_t{sizeof(float)});
  const auto* weights =
      static_cast<const std::byte*>(w.storage.data()) + panel * panel_bytes(w.cols, w.format);

  alignas(64) float acc[kPanelRows * kPanel];
  std::memset(acc, 0, static_cast<std::size_t>(rows * kPanel) * sizeof(float));
  const auto tiles = static_cast<int>(ceil_div(rows, std::int64_t{set.max_rows}));
  const std::int64_t block = tiles == 1 ? steps : block_steps(steps, set.block_bytes / step_bytes);
  for (std::int64_t s = 0; s < steps; s += block) {
    const std::int64_t count = std::min(block, steps - s);
    std::int64_t row = 0;
    for (int t = 0; t < tiles; ++t) {
      // As equal as possible, or a group.
      const std::int64_t n =
          x.most_in_group > 1 ? x.in_group(row + first) : (rows - row) / (tiles - t);
      set.tiles[static_cast<std::size_t>(n)](weights + s * step_bytes,
                                             x.at(row + first, s * x_step_bytes), x.stride_bytes,
                                             count, acc + row * kPanel, {t, tiles});
      row += n;
    }
  }
  const std::int64_t columns = std::min(kPanel, w.rows - panel * kPanel);
  for (std::int64_t r = 0; r < rows; ++r) {
    add_to(out + r * out_stride + panel * kPanel, acc + r * kPanel, columns, accumulate);
  }
}

void linear_own(const Workers& workers, TensorView x, const Matrix& w, TensorView out,
                bool accumulate) {
  const LinearKernels& kernels = linear_kernels(workers.isa);
  const TileSet& set = tiles_for(kernels, w.format);
  Scratch scratch(workers);
  const Rows rows =
      prepare(workers, kernels, set.x_format, x, x_width(w.cols, w.format, set.x_format), scratch);
  const std::int64_t panels = (w.rows + kPanel - 1) / kPanel;
  const std::int64_t total = x.shape[0];
  const std::int64_t tiles = (std::min<std::int64_t>(total, kMaxBatchInvariantRows) + 3) / 4;
  const std::int64_t worth = panels * panel_bytes(w.cols, w.format) * tiles / kBytesPerThread;
  parallel_for(with_threads(workers, worth), panels, [&](std::int64_t panel, int) {
    for (std::int64_t r = 0; r < total; r += kPanelRows) {
      run_panel(set, w, panel, rows, r, std::min(kPanelRows, total - r),
                out.as<float>() + r * out.stride[0], out.stride[0], accumulate);
    }
  });
}

// Columns [begin, begin + count) of the panels as f32: as panels, or plain [K][kUnpackColumns].
void widen_panels(const Workers& workers, const Matrix& w, std::int64_t begin, std::int64_t count,
                  bool plain, float* out) {
  constexpr std::int64_t kPart = 64;  // rows of a panel that one thread takes
  const Widen widen = widen_for(linear_kernels(workers.isa), w.format.type);
  const std::int64_t depth = round_up(w.cols, 16), parts = ceil_div(depth, kPart);
  const auto* panels = static_cast<const std::byte*>(w.storage.data());
  parallel_for(workers, ceil_div(count, kPanel) * parts, [&](std::int64_t unit, int) {
    const std::int64_t panel = unit / parts, row = unit % parts * kPart;
    widen(
        panels + (begin / kPanel + panel) * panel_bytes(w.cols, w.format) +
            row * kPanel * size_of(w.format.type),
        std::min(kPart, depth - row), kPanel,
        plain ? out + row * kUnpackColumns + panel * kPanel : out + (panel * depth + row) * kPanel,
        plain ? kUnpackColumns : kPanel);
  });
}

// This is for panels that oneDNN cannot read as they lie. It takes a block of columns at a time as
// f32.
void linear_unpacked(const Workers& workers, Gemm& gemm, TensorView x, const Matrix& w,
                     TensorView out, bool accumulate) {
  Scratch scratch(workers);
  const XFormat format = w.format.type == DType::kBF16 ? XFormat::kRoundedF32 : XFormat::kF32;
  const Rows rows = prepare(workers, linear_kernels(workers.isa), format, x,
                            x_width(w.cols, w.format, format), scratch);
  auto* block = scratch.take<float>(kUnpackColumns * padded_depth(w.cols, w.format));
  for (std::int64_t c = 0, columns = 0; c < w.rows; c += columns) {
    columns = std::min(kUnpackColumns, w.rows - c);
    if (w.rows - c - columns == 1) columns -= kPanel;  // Gemm::Shape::n
    Gemm::Shape shape{.weights = Gemm::Weights::kPanelsF32,
                      .m = x.shape[0],
                      .k = w.cols,
                      .n = columns,
                      .lda = rows.stride_bytes / size_of(DType::kF32),
                      .ldb = 0,
                      .ldc = out.stride[0],
                      .accumulate = accumulate};
    const bool plain = w.format.type == DType::kF32 || workers.isa < Isa::kAvx512 ||
                       !gemm.supports(workers, shape);
    if (plain) {
      shape.weights = Gemm::Weights::kPlainF32;
      shape.ldb = kUnpackColumns;
    }
    widen_panels(workers, w, c, columns, plain, block);
    gemm.run(workers, shape, rows.data, block, out.as<float>() + c);
  }
}

void linear_gemm(const Workers& workers, Gemm& gemm, TensorView x, const Matrix& w, TensorView out,
                 bool accumulate) {
  const bool bf16 = w.format.type == DType::kBF16;
  Gemm::Shape shape{
      .weights = bf16 ? Gemm::Weights::kPanelsBf16 : Gemm::Weights::kPanelsF32,
      .m = x.shape[0],
      // Whole steps of 32 where x is padded anyway: oneDNN leaves its fast path at other depths
      // (256x688: 116 instead of 1000 GFLOP/s).
      .k = bf16 ? round_up(w.cols, 32) : w.cols,
      .n = w.rows,
      .lda = bf16 ? round_up(w.cols, 32) : x.stride[0],
      .ldb = 0,
      .ldc = out.stride[0],
      .accumulate = accumulate,
  };
  const Isa needed = bf16 ? Isa::kAvx512Bf16 : Isa::kAvx512;
  if (w.format.type == DType::kF16 || workers.isa < needed || !gemm.supports(workers, shape)) {
    linear_unpacked(workers, gemm, x, w, out, accumulate);
    return;
  }
  Scratch scratch(workers);
  const Rows rows = prepare(workers, linear_kernels(workers.isa),
                            bf16 ? XFormat::kBf16 : XFormat::kF32, x, shape.k, scratch);
  TF_CHECK(rows.stride_bytes == shape.lda * (bf16 ? 2 : 4), "rows {} bytes apart",
           rows.stride_bytes);
  gemm.run(workers, shape, rows.data, w.storage.data(), out.as<float>());
}

// Rows [begin, end) of one panel, from rows of `src` that are src_stride elements apart.
template <class To, class From>
void pack_panel(typename To::Stored* panel, std::int64_t begin, std::int64_t end, std::int64_t cols,
                const typename From::Stored* src, std::int64_t src_stride) {
  constexpr std::int64_t kPair = To::kType == DType::kBF16 ? 2 : 1;
  for (std::int64_t k = 0; k < cols; ++k) {
    auto* to = panel + k / kPair * kPanel * kPair + k % kPair;
    for (std::int64_t lane = begin; lane < end; ++lane) {
      to[lane * kPair] = To::store(From::load(src[(lane - begin) * src_stride + k]));
    }
  }
}

// The same, quantised: one group of a row after the other.
template <class To, class From, int kBits>
void quantise_panel(std::byte* panel, std::int64_t begin, std::int64_t end, std::int64_t cols,
                    const typename From::Stored* src, std::int64_t src_stride) {
  constexpr Quantisation kBy = kBits == 4 ? Quantisation::kInt4 : Quantisation::kInt8;
  constexpr int kPlaces = 32 / kBits;  // codes of a word
  for (std::int64_t k = 0; k < cols; k += kWeightGroup, panel += kQuantisedStepBytes<kBits>) {
    const auto n = static_cast<std::size_t>(std::min(kWeightGroup, cols - k));
    auto* const scales = reinterpret_cast<std::uint16_t*>(panel);
    auto* const words = reinterpret_cast<std::uint32_t*>(panel + kScaleBytes);
    for (std::int64_t lane = begin; lane < end; ++lane) {
      std::array<float, kWeightGroup> values;
      std::array<std::int8_t, kWeightGroup> codes{};
      for (std::size_t i = 0; i < n; ++i) {
        const auto from = static_cast<std::size_t>((lane - begin) * src_stride + k) + i;
        values[i] = To::load(To::store(From::load(src[from])));
      }
      scales[lane] = quantise_group(std::span(values).first(n), kBy, std::span(codes).first(n));
      for (std::int64_t row = 0; row < kWeightGroup / kPlaces; ++row) {
        std::uint32_t word = 0;
        for (int place = 0; place < kPlaces; ++place) {
          const auto code = static_cast<std::uint32_t>(
              codes[static_cast<std::size_t>(row * kPlaces + depth_in_word<kBits>(place))]);
          word |= (code & ((1U << kBits) - 1U)) << (kBits * place);
        }
        words[row * kPanel + lane] = word;
      }
    }
  }
}

}  // namespace

std::int64_t packed_bytes(std::int64_t rows, std::int64_t cols, WeightFormat format) {
  return round_up(rows, kPanel) / kPanel * panel_bytes(cols, format);
}

void pack_rows(const Workers& workers, Matrix& m, std::int64_t row_begin, TensorView src) {
  const std::int64_t row_end = row_begin + src.shape[0];
  const std::int64_t first = row_begin / kPanel;
  const std::int64_t panels = (row_end + kPanel - 1) / kPanel - first;
  visit_float(m.format.type, [&](auto to) {
    visit_float(src.dtype, [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      parallel_for(workers, panels, [&](std::int64_t p, int) {
        const std::int64_t base = (first + p) * kPanel;
        const std::int64_t begin = std::max(row_begin, base),
                           end = std::min(row_end, base + kPanel);
        auto* panel =
            static_cast<std::byte*>(m.storage.data()) + (first + p) * panel_bytes(m.cols, m.format);
        const auto* rows = static_cast<const typename From::Stored*>(src.data) +
                           (begin - row_begin) * src.stride[0];
        switch (m.format.quantisation) {
          case Quantisation::kNone:
            pack_panel<To, From>(reinterpret_cast<typename To::Stored*>(panel), begin - base,
                                 end - base, m.cols, rows, src.stride[0]);
            break;
          case Quantisation::kInt8:
            quantise_panel<To, From, 8>(panel, begin - base, end - base, m.cols, rows,
                                        src.stride[0]);
            break;
          case Quantisation::kInt4:
            quantise_panel<To, From, 4>(panel, begin - base, end - base, m.cols, rows,
                                        src.stride[0]);
            break;
        }
      });
    });
  });
}

namespace {

// Row `id` of such a matrix as f32. Its elements, or pairs of them, lie a panel's width apart: the
// Units. They are brought together in parts, and then converted.
template <class Unit>
void unpack_row(const Matrix& table, Token id, Widen widen, float* to) {
  constexpr std::int64_t kPart = 256;
  const std::int64_t element = size_of(table.format.type);
  const std::int64_t per_unit = std::int64_t{sizeof(Unit)} / element;
  const auto* from =
      reinterpret_cast<const Unit*>(static_cast<const std::byte*>(table.storage.data()) +
                                    id / kPanel * panel_bytes(table.cols, table.format)) +
      id % kPanel;
  alignas(64) std::array<Unit, kPart> part;
  const std::int64_t step = kPart * per_unit;
  for (std::int64_t k = 0; k < table.cols; k += step, from += kPart * kPanel) {
    const std::int64_t n = std::min(step, table.cols - k);
    const auto units = static_cast<std::size_t>(ceil_div(n, per_unit));
    for (std::size_t i = 0; i < units; ++i) part[i] = from[i * kPanel];
    const auto* stored = reinterpret_cast<const std::byte*>(part.data());
    const std::int64_t whole = widen == nullptr ? 0 : n / kLanes * kLanes;
    if (whole > 0) widen(stored, 1, whole, to + k, whole);
    convert(to + k + whole, DType::kF32, stored + whole * element, table.format.type, n - whole);
  }
}

}  // namespace

void embed(const Workers& workers, TensorView tokens, const Matrix& table, TensorView out) {
  // The other types take a shift, or nothing.
  const Widen widen =
      table.format.type == DType::kF16 ? linear_kernels(workers.isa).widen_f16 : nullptr;
  const auto* ids = tokens.as<Token>();
  parallel_for(with_threads(workers, out.numel() / kElementsPerThread), out.shape[0],
               [&](std::int64_t t, int) {
                 float* const to = out.as<float>() + t * out.stride[0];
                 if (table.format.type == DType::kF16) {
                   unpack_row<std::uint16_t>(table, ids[t], widen, to);
                 } else {  // f32, or two of bf16
                   unpack_row<std::uint32_t>(table, ids[t], widen, to);
                 }
               });
}

std::int64_t linear_scratch_bytes(std::int64_t rows, std::int64_t max_width) {
  const std::int64_t width = round_up(max_width, kWeightGroup);
  return round_up(rows * width * 4 + kMaxBatchInvariantRows * kRowGap, 64) +
         round_up(kUnpackColumns * width * 4, 64);
}

void linear(const Workers& workers, Gemm& gemm, TensorView x, const Matrix& w, TensorView out,
            bool accumulate, RowPath path) {
  if (path == RowPath::kInvariant || x.shape[0] <= kMaxBatchInvariantRows ||
      workers.isa == Isa::kScalar || w.rows == 1 || w.format.is_quantised()) {
    linear_own(workers, x, w, out, accumulate);
  } else {
    linear_gemm(workers, gemm, x, w, out, accumulate);
  }
}

}  // namespace triforce::cpu
