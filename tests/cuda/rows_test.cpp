// Rows as kernels convert, pack and score them.
#include "kernels/kernels.h"

#include <algorithm>
#include <cmath>

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
    m.dtype = type;
    m.rows = kRows;
    m.cols = kCols;
    m.storage = Buffer(a_, packed_bytes(kRows, kCols), Place::kDevice, MemTag::kWorkspace);
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
