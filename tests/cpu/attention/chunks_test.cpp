// score_chunks against double arithmetic, top_chunks against a full stable sort.
#include <numeric>

#include "fixture.h"

namespace triforce::cpu::test {
namespace {

void expect_scores(Isa isa, DType type, int heads, int kv_heads, int d, int chunk,
                   std::int64_t chunks, int threads) {
  SCOPED_TRACE(fmt::format("{} {} heads {}/{} d {} chunk {} x {}", to_string(isa), to_string(type),
                           heads, kv_heads, d, chunk, chunks));
  Cache cache(type, kv_heads, d, chunks * chunk);  // what lies beyond stays NaN
  cache.fill(0, chunks * chunk, 6);
  std::vector<float> q = random_floats(heads * d, 7);
  FencedBytes scores(kv_heads * chunks * 4);
  score_chunks({isa, threads, {}}, make_view(q.data(), DType::kF32, {heads, d}), cache.view(),
               chunk, chunks, make_view(scores.data(), DType::kF32, {kv_heads, chunks}));
  scores.check("scores");
  const int group = heads / kv_heads;
  for (int h = 0; h < kv_heads; ++h) {
    for (std::int64_t c = 0; c < chunks; ++c) {
      double expected = 0, size = 0;
      for (int g = 0; g < group; ++g) {
        for (int i = 0; i < d; ++i) {
          double mean = 0, mean_size = 0;
          for (std::int64_t row = c * chunk; row < (c + 1) * chunk; ++row) {
            const auto x = static_cast<double>(cache.get(true, h, row, i));
            mean += x / chunk;
            mean_size += std::abs(x) / chunk;
          }
          const auto x = static_cast<double>(q[static_cast<std::size_t>((h * group + g) * d + i)]);
          expected += x * mean;
          size += std::abs(x) * mean_size;
        }
      }
      float got;
      std::memcpy(&got, scores.data() + (h * chunks + c) * 4, 4);
      ASSERT_LE(std::abs(static_cast<double>(got) - expected),
                size * (group + d + chunk + 2) * 0x1.0p-24)
          << "head " << h << " chunk " << c;
    }
  }
}

TEST(ScoreChunks, MatchesDouble) {
  for (const Isa isa : levels()) {
    for (const DType type : kFormats) {
      expect_scores(isa, type, 1, 1, 16, 8, 1, 1);
      expect_scores(isa, type, 4, 2, 64, 8, 301, 2);
      expect_scores(isa, type, 6, 2, 48, 7, 113, 3);
      expect_scores(isa, type, 2, 2, 32, 1, 77, 2);
      expect_scores(isa, type, 2, 1, 80, 300, 9, 2);
      expect_scores(isa, type, 1, 1, 16, 2500, 2, 2);
    }
  }
}

TEST(ScoreChunks, RejectsChunksBeyondTheCapacity) {
  Cache cache(DType::kF32, 1, 16, 64);
  std::vector<float> q(16, 0.0F), scores(9, 0.0F);
  EXPECT_THROW(score_chunks({Isa::kScalar, 1, {}}, make_view(q.data(), DType::kF32, {1, 16}),
                            cache.view(), 8, 9, make_view(scores.data(), DType::kF32, {1, 9})),
               Error);
}

void expect_top(std::vector<float> scores, std::int64_t heads, std::int64_t n) {
  const auto chunks = static_cast<std::int64_t>(scores.size()) / heads;
  SCOPED_TRACE(fmt::format("{} of {} chunks, {} heads", n, chunks, heads));
  FencedBytes ids(heads * n * 4), scratch(heads * chunks * 8);
  top_chunks({best_isa(), 2, {scratch.data(), static_cast<std::size_t>(scratch.bytes())}},
             make_view(scores.data(), DType::kF32, {heads, chunks}),
             make_view(ids.data(), DType::kI32, {heads, n}));
  ids.check("ids");
  scratch.check("scratch");
  for (std::int64_t h = 0; h < heads; ++h) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(chunks - 1));
    std::iota(order.begin(), order.end(), 1);
    const float* s = scores.data() + h * chunks;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return s[a] > s[b]; });
    order.insert(order.begin(), 0);
    for (std::int64_t j = 0; j < n; ++j) {
      std::int32_t got;
      std::memcpy(&got, ids.data() + (h * n + j) * 4, 4);
      ASSERT_EQ(got, order[static_cast<std::size_t>(j)]) << "head " << h << " rank " << j;
    }
  }
}

TEST(TopChunks, BestFirstLowerIdAmongEquals) {
  expect_top({1.0F}, 1, 1);
  expect_top({1.0F, 2.0F, 3.0F, 2.0F, 3.0F}, 1, 5);
  expect_top({0.0F, -0.0F, 0.0F, -1.0F, -0.0F, 1e-40F, -1e-40F}, 1, 6);
  expect_top({5, 5, 5, 5, 5, 5, 5, 5}, 2, 3);
  expect_top(random_floats(2048 * 4, 8), 4, 512);
  std::vector<float> ties = random_floats(16384, 9);
  for (float& x : ties) x = std::round(x * 8);
  expect_top(ties, 1, 4096);
  expect_top(ties, 2, 8192);
}

TEST(TopChunks, NanRanksLast) {
  const float nan = std::nanf("");
  std::vector<float> scores = {nan, nan, -1e30F, nan, 3.0F};
  std::vector<std::int32_t> ids(4);
  FencedBytes scratch(5 * 8);
  top_chunks({Isa::kScalar, 1, {scratch.data(), 40}}, make_view(scores.data(), DType::kF32, {1, 5}),
             make_view(ids.data(), DType::kI32, {1, 4}));
  EXPECT_EQ(ids, (std::vector<std::int32_t>{0, 4, 2, 1}));
}

}  // namespace
}  // namespace triforce::cpu::test
