// Keys from their low-rank form, of sums that f32 holds: every bit is that of the definition.
#include <cmath>
#include <vector>

#include "cuda/kv_test_support.h"
#include "kernels/kernels.h"

namespace triforce::kernels {
namespace {

using namespace cuda;

struct Expanded {
  int d, chunk;
  std::int64_t rank, tokens, taken, first;
};

class LowRankKeysTest : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr int kKvHeads = 2;
  void expect_keys(const Expanded& e);
  CudaAllocator a_{0};
};

// All chunks, one before them and two that reach beyond the tokens, each fifth of these; after
// those of a head comes one that is not its own.
std::vector<std::int32_t> ids_of(const Expanded& e, std::int64_t rows) {
  const std::int64_t chunks = e.tokens / e.chunk + 3;
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < rows * (e.taken + 1); ++i) {
    ids.push_back(static_cast<std::int32_t>(5 * i % chunks - 1));
  }
  return ids;
}

void LowRankKeysTest::expect_keys(const Expanded& e) {
  const DType type = GetParam();
  const std::int64_t half = e.d / 2, capacity = (e.taken * e.chunk + 31) / 16 * 16;
  TestCache cache(a_, type, kKvHeads, e.d, capacity, 0, 3);
  TestRope rope(a_, e.tokens, e.d, 5);
  const std::vector<float> a = eighths(count(e.tokens, e.rank), 6),
                           basis = eighths(count(kKvHeads * e.rank, e.d), 7);
  const OnDevice<std::uint16_t> da(a_, to_halves(a, type)), db(a_, to_halves(basis, type));
  const std::vector<std::int32_t> ids = ids_of(e, kKvHeads);
  const OnDevice<std::int32_t> dids(a_, ids);
  TensorView list = make_view(dids.data(), DType::kI32, {kKvHeads, e.taken + 1});
  --list.shape[1];
  expand_keys({make_view(da.data(), type, {e.tokens, e.rank}),
               make_view(db.data(), type, {kKvHeads, e.rank, e.d})},
              list, e.chunk, e.first, rope.device(), cache.device(), nullptr);

  std::vector<std::uint16_t> want = cache.k;
  for (std::int64_t h = 0; h < kKvHeads; ++h) {
    for (std::int64_t row = e.first * e.chunk; row < e.taken * e.chunk; ++row) {
      const std::int64_t id = ids[count(h, e.taken + 1) + count(row / e.chunk, 1)];
      const std::int64_t token = id * e.chunk + row % e.chunk;
      if (id < 0 || (id + 1) * e.chunk > e.tokens) continue;
      const auto sum = [&](std::int64_t j) {
        float all = 0;
        for (std::int64_t i = 0; i < e.rank; ++i) {
          all += a[count(token, e.rank) + count(i, 1)] *
                 basis[count(h * e.rank + i, e.d) + count(j, 1)];
        }
        return all;
      };
      std::uint16_t* const key = &want[count(h * capacity + row, e.d)];
      for (std::int64_t j = 0; j < half; ++j) {
        const float low = sum(j), high = sum(j + half);
        const float c = rope.cos[count(token, half) + count(j, 1)],
                    s = rope.sin[count(token, half) + count(j, 1)];
        key[j] = to_half(std::fmaf(-high, s, low * c), type);
        key[j + half] = to_half(std::fmaf(low, s, high * c), type);
      }
    }
  }
  EXPECT_EQ(cache.device_k() == want, true);
  EXPECT_EQ(cache.device_v() == cache.v, true);
}

TEST_P(LowRankKeysTest, AreSumsOfProductsRotatedByTheirTokens) {
  constexpr Expanded kExpanded[] = {{64, 8, 16, 77, 9, 0},
                                    {128, 8, 80, 203, 19, 3},
                                    {64, 3, 160, 90, 60, 1},
                                    {128, 1, 48, 150, 140, 5},
                                    {128, 80, 64, 255, 4, 1}};
  for (const Expanded& e : kExpanded) {
    SCOPED_TRACE(::testing::Message()
                 << e.d << " dimensions, rank " << e.rank << ", chunks of " << e.chunk);
    expect_keys(e);
  }
}

// Turned back, and as they lie.
TEST_P(LowRankKeysTest, AreReadBeforeTheirRotation) {
  constexpr std::int64_t kRow = 5, kCount = 40, kCapacity = 48;
  const DType type = GetParam();
  for (const int d : {64, 128}) {
    const TestCache cache(a_, type, kKvHeads, d, kCapacity, 0, 9);
    TestRope rope(a_, kCapacity, d, 10);
    const std::int64_t width = kKvHeads * d, half = d / 2;
    for (const bool turned : {true, false}) {
      const OnDevice<float> out(a_, std::vector<float>(count(kCount, width)));
      read_keys(cache.device(), kRow, kCount, turned ? rope.device() : RopeView{},
                make_view(out.data(), DType::kF32, {kCount, width}), nullptr);
      std::vector<float> want(count(kCount, width));
      for (std::int64_t h = 0; h < kKvHeads; ++h) {
        for (std::int64_t r = 0; r < kCount; ++r) {
          const std::uint16_t* const key = &cache.k[count(h * kCapacity + kRow + r, d)];
          float* const to = &want[count(r, width) + count(h, d)];
          for (std::int64_t j = 0; j < half; ++j) {
            const float low = from_half(key[j], type), high = from_half(key[j + half], type);
            const float c = rope.cos[count(kRow + r, half) + count(j, 1)],
                        s = rope.sin[count(kRow + r, half) + count(j, 1)], size = c * c + s * s;
            to[j] = turned ? (low * c + high * s) / size : low;
            to[j + half] = turned ? (high * c - low * s) / size : high;
          }
        }
      }
      EXPECT_EQ(out.values() == want, true) << d << ' ' << turned;
    }
  }
}

TEST_P(LowRankKeysTest, HaveMeansOfChunks) {
  constexpr std::int64_t kFirst = 2, kCount = 9, kChunk = 5, kCapacity = 64, kMeans = 16;
  const DType type = GetParam();
  for (const int d : {64, 128}) {
    const TestCache cache(a_, type, kKvHeads, d, kCapacity, 0, 11),
        means(a_, type, kKvHeads, d, kMeans, 0, 12);
    mean_keys(cache.device(), kChunk, kFirst, kCount, means.device(), nullptr);
    std::vector<std::uint16_t> want = means.k;
    for (std::int64_t h = 0; h < kKvHeads; ++h) {
      for (std::int64_t c = kFirst; c < kFirst + kCount; ++c) {
        for (std::int64_t j = 0; j < d; ++j) {
          float sum = 0;
          for (std::int64_t r = c * kChunk; r < (c + 1) * kChunk; ++r) {
            sum += from_half(cache.k[count(h * kCapacity + r, d) + count(j, 1)], type);
          }
          want[count(h * kMeans + c, d) + count(j, 1)] = to_half(sum / kChunk, type);
        }
      }
    }
    EXPECT_EQ(means.device_k() == want, true) << d;
    EXPECT_EQ(means.device_v() == means.v, true) << d;

    // The same of rows in the host's memory and order.
    const Buffer host(a_, 2 * std::ssize(cache.k), Place::kPinned, MemTag::kStaging);
    KvView rows = cache.device();
    rows.k = rows.v = host.data();
    rows.on_host = true;
    for (std::int64_t r = 0; r < kKvHeads * kCapacity; ++r) {
      const std::int64_t head = r / kCapacity * kCapacity * d;
      for (int j = 0; j < d; ++j) {
        static_cast<std::uint16_t*>(rows.k)[head + element_of(rows, true, r % kCapacity, j)] =
            cache.k[count(r, d) + count(j, 1)];
      }
    }
    const TestCache of_host(a_, type, kKvHeads, d, kMeans, 0, 12);
    mean_keys(rows, kChunk, kFirst, kCount, of_host.device(), nullptr);
    EXPECT_EQ(of_host.device_k() == want, true) << d;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LowRankKeysTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce::kernels
