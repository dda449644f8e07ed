// Rows as kernels convert, pack and score them.
#include "kernels/kernels.h"

#include <algorithm>
#include <cmath>

#include "core/quantise.h"
#include "cuda/kv_test_support.h"

namespace triforce::kernels {
namespace {

using namespace cuda;

class RowsTest : public ::testing::TestWithParam<DType> {
 protected:
  CudaAllocator a_{0};
};

TEST_P(RowsTest, ConvertRoundsAndKeepsStrides) {
  const DType type = GetParam();
  constexpr std::int64_t kRows = 4, kWidth = 70, kStride = 75;
  const std::vector<float> x = normals(count(kRows, kStride), 7);
  const OnDevice<float> dx(a_, x);
  const OnDevice<std::uint16_t> half(a_, std::vector<std::uint16_t>(x.size(), 7));
  TensorView from = make_view(dx.data(), DType::kF32, {kRows, kWidth});
  TensorView to = make_view(half.data(), type, {kRows, kWidth});
  from.stride[0] = to.stride[0] = kStride;
  convert(from, to, nullptr);
  const std::vector<std::uint16_t> got = half.values();
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], i % kStride < kWidth ? to_half(x[i], type) : 7) << i;
  }
  const OnDevice<float> back(a_, std::vector<float>(x.size()));
  TensorView wide = make_view(back.data(), DType::kF32, {kRows, kWidth});
  wide.stride[0] = kStride;
  convert(to, wide, nullptr);
  EXPECT_EQ(back.values()[kStride], from_half(got[kStride], type));
}

TEST_P(RowsTest, ConvertCopiesAndGoesFromOneHalfToTheOther) {
  const DType type = GetParam(), other = type == DType::kF16 ? DType::kBF16 : DType::kF16;
  constexpr std::int64_t kRows = 2, kWidth = 33;
  const std::vector<std::uint16_t> x = to_halves(normals(count(kRows, kWidth), 8), type);
  const OnDevice<std::uint16_t> from(a_, x), to(a_, std::vector<std::uint16_t>(x.size()));
  const auto rows = [&](const OnDevice<std::uint16_t>& of, DType as) {
    return make_view(of.data(), as, {kRows, kWidth});
  };
  convert(rows(from, type), rows(to, type), nullptr);
  EXPECT_EQ(to.values(), x);
  convert(rows(from, type), rows(to, other), nullptr);
  const std::vector<std::uint16_t> got = to.values();
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], to_half(from_half(x[i], type), other)) << i;
  }
  const std::vector<std::int32_t> ids = {5, -3, 1 << 30, 0};
  const OnDevice<std::int32_t> some(a_, ids), same(a_, std::vector<std::int32_t>(ids.size()));
  convert(make_view(some.data(), DType::kI32, {2, 2}), make_view(same.data(), DType::kI32, {2, 2}),
          nullptr);
  EXPECT_EQ(same.values(), ids);
}

// Or added to what is there.
TEST_P(RowsTest, ABiasIsSetInEveryRow) {
  const DType type = GetParam();
  constexpr std::int64_t kRows = 3, kWidth = 300;
  const std::vector<float> bias = normals(kWidth, 5), x = normals(count(kRows, kWidth), 6);
  const OnDevice<float> of_columns(a_, bias), wide(a_, x);
  const OnDevice<std::uint16_t> half(a_, to_halves(x, type));
  set_bias(of_columns.data(), make_view(wide.data(), DType::kF32, {kRows, kWidth}), true, nullptr);
  set_bias(of_columns.data(), make_view(half.data(), type, {kRows, kWidth}), false, nullptr);
  const std::vector<float> sums = wide.values();
  const std::vector<std::uint16_t> set = half.values();
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(sums[i], x[i] + bias[i % kWidth]) << i;
    ASSERT_EQ(set[i], to_half(bias[i % kWidth], type)) << i;
  }
}

TEST_P(RowsTest, EachHeadIsNormedByItself) {
  const DType type = GetParam();
  constexpr std::int64_t kRows = 2, kHeads = 9, kDim = 80, kWidth = kHeads * kDim;
  const std::vector<std::uint16_t> x = to_halves(normals(count(kRows, kWidth), 7), type);
  const std::vector<float> w = normals(kWidth, 8);
  const OnDevice<std::uint16_t> on_device(a_, x);
  const OnDevice<float> weights(a_, w);
  head_norm(make_view(on_device.data(), type, {kRows, kHeads, kDim}),
            make_view(weights.data(), DType::kF32, {kHeads, kDim}), 1e-5F, nullptr);
  const std::vector<std::uint16_t> got = on_device.values();
  for (std::size_t head = 0; head < kRows * kHeads; ++head) {
    double squares = 0;
    for (std::size_t j = head * kDim; j < (head + 1) * kDim; ++j) {
      squares += std::pow(double{from_half(x[j], type)}, 2);
    }
    for (std::size_t j = head * kDim; j < (head + 1) * kDim; ++j) {
      const double want =
          double{from_half(x[j], type)} / std::sqrt(squares / kDim + 1e-5) * double{w[j % kWidth]};
      // Half a unit of the type, and what f32 may be off before it.
      const double rounding = type == DType::kF16 ? 0x1p-11 : 0x1p-8;
      ASSERT_NEAR(from_half(got[j], type), want, std::abs(want) * (rounding + 1e-5) + 1e-7) << j;
    }
  }
}

// Rows in the order of tensor cores come back rounded once, whatever they were.
TEST_P(RowsTest, PackedRowsAreTheRoundedOnes) {
  const DType type = GetParam();
  constexpr std::int64_t kRows = 21, kCols = 70, kFirst = 3, kSome = 9;
  const std::vector<float> x = normals(count(kRows, kCols), 9);
  for (const DType from : {DType::kF32, DType::kF16, DType::kBF16}) {
    const OnDevice<float> wide(a_, x);
    const std::vector<std::uint16_t> halves = to_halves(x, from == DType::kF32 ? type : from);
    const OnDevice<std::uint16_t> narrow(a_, halves);
    const TensorView source = from == DType::kF32 ? make_view(wide.data(), from, {kRows, kCols})
                                                  : make_view(narrow.data(), from, {kRows, kCols});
    Matrix m;
    m.format = type;
    m.rows = kRows;
    m.cols = kCols;
    m.storage = Buffer(a_, packed_bytes(kRows, kCols, type), Place::kDevice, MemTag::kWorkspace);
    pack_rows(m, 0, source, nullptr);
    const OnDevice<std::uint16_t> out(a_, std::vector<std::uint16_t>(count(kSome, kCols)));
    unpack_rows(m, kFirst, make_view(out.data(), type, {kSome, kCols}), nullptr);
    const std::vector<std::uint16_t> got = out.values();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t at = count(kFirst, kCols) + i;
      const float exact = from == DType::kF32 ? x[at] : from_half(halves[at], from);
      ASSERT_EQ(got[i], to_half(exact, type)) << i << " of rows of " << static_cast<int>(from);
    }
  }
}

// Rows whose product with a unit matrix is what the host quantises them to: in blocks of rows and
// one at a time, in f32 and in the type, from every type and set in two pieces.
class QuantisedRows {
 public:
  static constexpr std::int64_t kRows = 37, kCols = 150, kCut = 5;

  QuantisedRows(CudaAllocator& a, WeightFormat format, DType from)
      : a_(a), format_(format), from_(from), x_(normals(count(kRows, kCols), 9)) {
    for (std::int64_t k = 0; k < kWeightGroup; ++k) {
      x_[count(1, kCols) + count(k, 1)] = 0;          // no scale
      x_[count(2, kCols) + count(k, 1)] *= 1e-9F;     // nor one in f16
      x_[count(3, kCols) + count(k, 1)] *= 0x1p-17F;  // one with few digits
    }
    x_[count(4, kCols)] = NAN;
    x_[count(5, kCols)] = INFINITY;
    m_.format = format;
    m_.rows = kRows;
    m_.cols = kCols;
    m_.storage = Buffer(a_, packed_bytes(kRows, kCols, format), Place::kDevice, MemTag::kWorkspace);
  }
  void set() {
    const DType held = from_ == DType::kF32 ? format_.type : from_;
    halves_ = to_halves(x_, held);
    const OnDevice<float> wide(a_, x_);
    const OnDevice<std::uint16_t> narrow(a_, halves_);
    void* const data = from_ == DType::kF32 ? static_cast<void*>(wide.data()) : narrow.data();
    const TensorView all = make_view(data, from_, {kRows, kCols});
    pack_rows(m_, kCut, all.rows(kCut, kRows - kCut), nullptr);
    pack_rows(m_, 0, all.rows(0, kCut), nullptr);
    TF_CUDA(cudaDeviceSynchronize());
  }
  // What element (row, col) stands for.
  std::vector<float> expected() const {
    std::vector<float> out(x_.size());
    std::vector<std::int8_t> codes(kWeightGroup);
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t begin = 0; begin < kCols; begin += kWeightGroup) {
        const std::size_t n = count(std::min(kWeightGroup, kCols - begin), 1);
        const std::size_t at = count(row, kCols) + count(begin, 1);
        std::vector<float> group(n);
        for (std::size_t i = 0; i < n; ++i) group[i] = rounded(at + i);
        const float scale =
            f16_to_f32(quantise_group(group, format_.quantisation, std::span(codes).first(n)));
        for (std::size_t i = 0; i < n; ++i) out[at + i] = scale * static_cast<float>(codes[i]);
      }
    }
    return out;
  }
  // Columns [first, first + n), each as a row, from a product of n rows; as f32.
  std::vector<float> columns(std::int64_t first, std::int64_t n, bool wide) const {
    std::vector<float> unit(count(n, kCols));
    for (std::int64_t i = 0; i < n; ++i) unit[count(i, kCols) + count(first + i, 1)] = 1;
    const OnDevice<std::uint16_t> x(a_, to_halves(unit, format_.type));
    const TensorView rows = make_view(x.data(), format_.type, {n, kCols});
    if (wide) {
      const OnDevice<float> out(a_, std::vector<float>(count(n, kRows)));
      linear(rows, packed(m_), make_view(out.data(), DType::kF32, {n, kRows}), false, nullptr);
      return out.values();
    }
    const OnDevice<std::uint16_t> out(a_, std::vector<std::uint16_t>(count(n, kRows)));
    linear(rows, packed(m_), make_view(out.data(), format_.type, {n, kRows}), false, nullptr);
    return from_halves(out.values(), format_.type);
  }

 private:
  float rounded(std::size_t i) const {
    const DType held = from_ == DType::kF32 ? format_.type : from_;
    return from_half(to_half(from_half(halves_[i], held), format_.type), format_.type);
  }

  CudaAllocator& a_;
  WeightFormat format_;
  DType from_;
  std::vector<float> x_;
  std::vector<std::uint16_t> halves_;
  Matrix m_;
};

TEST_P(RowsTest, QuantisedRowsAreThoseOfTheHost) {
  constexpr std::int64_t kRows = QuantisedRows::kRows, kCols = QuantisedRows::kCols;
  const DType type = GetParam();
  for (const Quantisation by : {Quantisation::kInt8, Quantisation::kInt4}) {
    for (const DType from : {DType::kF32, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(fmt::format("{} from {}", to_string(by), to_string(from)));
      QuantisedRows rows(a_, {type, by}, from);
      rows.set();
      const std::vector<float> want = rows.expected();
      const auto expect_columns = [&](std::int64_t first, std::int64_t n, bool wide) {
        const std::vector<float> got = rows.columns(first, n, wide);
        for (std::int64_t i = 0; i < n; ++i) {
          for (std::int64_t row = 0; row < kRows; ++row) {
            const float value = got[count(i, kRows) + count(row, 1)];
            if (row == 4 || row == 5) {  // with a value that is not finite
              EXPECT_TRUE(std::isnan(value)) << row << ' ' << first + i;
              continue;
            }
            const float exact = want[count(row, kCols) + count(first + i, 1)];
            ASSERT_EQ(value, wide ? exact : from_half(to_half(exact, type), type))
                << row << ' ' << first + i;
          }
        }
      };
      expect_columns(0, kCols / 2, true);  // several kernels
      expect_columns(kCols / 2, kCols / 2, true);
      expect_columns(60, 9, false);
      for (const std::int64_t col : {0, 63, 64, 149}) {
        for (const bool wide : {true, false}) expect_columns(col, 1, wide);
      }
    }
  }
}

// What a chunk is worth to the queries of a group: its mean key times them, or the most that a key
// within its bounds could give each.
TEST_P(RowsTest, ScoresOfChunksMatchTheirDefinition) {
  const DType type = GetParam();
  constexpr int kKvHeads = 2, kGroup = 3, kDim = 64, kChunk = 5;
  constexpr std::int64_t kCapacity = 72, kChunks = 13;
  TestCache cache(a_, type, kKvHeads, kDim, kCapacity, kCapacity, 3);
  const std::vector<std::uint16_t> q = to_halves(normals(count(kKvHeads * kGroup, kDim), 6), type);
  const OnDevice<std::uint16_t> dq(a_, q);
  const OnDevice<float> out(a_, std::vector<float>(count(kKvHeads, kChunks)));
  const auto value = [&](const std::vector<std::uint16_t>& of, std::int64_t row, int j) {
    return double{from_half(of[static_cast<std::size_t>(row * kDim + j)], type)};
  };
  for (const ChunkRule rule : {ChunkRule::kMeanKey, ChunkRule::kKeyBounds}) {
    score_chunks(make_view(dq.data(), type, {kKvHeads * kGroup, kDim}), cache.device(), kChunk,
                 kChunks, make_view(out.data(), DType::kF32, {kKvHeads, kChunks}), rule, nullptr);
    const std::vector<float> got = out.values();
    for (int h = 0; h < kKvHeads; ++h) {
      for (std::int64_t c = 0; c < kChunks; ++c) {
        double score = 0, size = 0;
        for (int j = 0; j < kDim; ++j) {
          double mean = 0, least = INFINITY, largest = -INFINITY;
          for (int r = 0; r < kChunk; ++r) {
            const double key = value(cache.k, h * kCapacity + c * kChunk + r, j);
            mean += key / kChunk;
            least = std::min(least, key);
            largest = std::max(largest, key);
          }
          for (int g = 0; g < kGroup; ++g) {
            const double query = value(q, h * kGroup + g, j);
            score += rule == ChunkRule::kMeanKey ? query * mean
                                                 : std::max(query * least, query * largest);
            size += std::abs(query) * std::max(std::abs(least), std::abs(largest));
          }
        }
        // f32 rounds each step once: chunk, mean, product, 2 dimensions of the group a lane, and 5
        // steps of the warp.
        const double error = size * (kChunk + 2 + 2 * kGroup + 5) * 0x1p-24;
        ASSERT_NEAR(got[static_cast<std::size_t>(h * kChunks + c)], score, error)
            << h << ' ' << c << ", rule " << static_cast<int>(rule);
      }
    }
  }
}

// The sum of a word and zeros is that word; one value of it is written.
TEST(ReadAll, ReadsTheLastWord) {
  constexpr std::uint32_t kWritten = 0x9e3779b9U;
  for (const std::size_t words : {4, 4 * 512, 4 * 512 * 8 * 3 + 8}) {
    for (const std::uint32_t last : {kWritten, kWritten + 1}) {
      CudaAllocator a(0);
      std::vector<std::uint32_t> values(words);
      values.back() = last;
      const OnDevice<std::uint32_t> data(a, values), sink(a, std::vector<std::uint32_t>(1));
      read_all(data.data(), static_cast<std::int64_t>(words * sizeof(std::uint32_t)), 2,
               sink.data(), nullptr);
      EXPECT_EQ(sink.values()[0], last == kWritten ? kWritten : 0) << words;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RowsTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce::kernels
