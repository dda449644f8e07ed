// What writes, moves and ranks KV rows, against the oracle.
#include "cuda/kv_test_support.h"
#include "kernels/chunks.h"
#include "kernels/kv_rows.h"
#include "kernels/rope_append.h"
#include "reference/reference_backend.h"

namespace triforce::kernels {
namespace {

using namespace cuda;

struct Shape {
  int heads, kv_heads, d;
};

class KvTest : public ::testing::TestWithParam<std::tuple<DType, Shape>> {
 protected:
  DType type() const { return std::get<0>(GetParam()); }
  Shape shape() const { return std::get<1>(GetParam()); }
  CudaAllocator a_{0};
  std::unique_ptr<Backend> oracle_ = make_reference_backend();
};

// Two products and a sum in f32, then the rounding; angles are normal numbers here, not on a
// circle.
TEST_P(KvTest, RopeAppendMatchesTheOracle) {
  const auto [heads, kv_heads, d] = shape();
  for (const std::int64_t tokens : {1, 7, 40}) {
    for (const bool rotate_on_read : {false, true}) {
      TestCache cache(a_, type(), kv_heads, d, 96, 71, 1);
      TestRope rope(a_, 200, d, 3);
      const std::int64_t width = std::int64_t{heads + 2 * kv_heads} * d;
      const std::vector<std::uint16_t> qkv = to_halves(normals(count(tokens, width), 5), type());
      std::vector<std::int32_t> positions;
      for (std::int32_t t = 0; t < tokens; ++t) positions.push_back(11 + 3 * t);
      const OnDevice<std::uint16_t> dqkv(a_, qkv);
      const OnDevice<std::uint16_t> dq(a_, std::vector<std::uint16_t>(count(tokens, heads * d)));
      const OnDevice<std::int32_t> dp(a_, positions);
      KvView device = cache.device();
      device.rotate_on_read = rotate_on_read;
      rope_append(make_view(dqkv.data(), type(), {tokens, width}),
                  make_view(dp.data(), DType::kI32, {tokens}), rope.device(),
                  make_view(dq.data(), type(), {tokens, heads, d}), device, nullptr);
      // The oracle rounds where it stores; its own arithmetic is in double.
      std::vector<std::uint16_t> host_qkv = qkv, host_q(count(tokens, heads * d));
      KvView host = cache.host();
      host.rotate_on_read = rotate_on_read;
      oracle_->rope_append(make_view(host_qkv.data(), type(), {tokens, width}),
                           make_view(positions.data(), DType::kI32, {tokens}), rope.host(),
                           make_view(host_q.data(), type(), {tokens, heads, d}), host);
      const auto near = [&](const std::vector<std::uint16_t>& got,
                            const std::vector<std::uint16_t>& expected, const char* what) {
        ASSERT_EQ(got.size(), expected.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
          const double x = double{from_half(got[i], type())},
                       y = double{from_half(expected[i], type())};
          // Values to 4.5, angles to 4.5: terms of at most 25. Both round once more.
          ASSERT_NEAR(x, y, 50 * 3 * 0x1p-24 + 2 * unit_roundoff(type()) * std::abs(y) + 0x1p-24)
              << what << " " << i;
        }
      };
      near(dq.values(), host_q, "q");
      near(cache.device_k(), cache.k, "k");
      EXPECT_EQ(cache.device_v(), cache.v);
      if (rotate_on_read) {
        EXPECT_EQ(cache.device_k(), cache.k);
      }
    }
  }
}

TEST_P(KvTest, CopyRowsAtAnyAlignmentAndOverItself) {
  const auto [heads, kv_heads, d] = shape();
  TestCache from(a_, type(), kv_heads, d, 80, 80, 1), to(a_, type(), kv_heads, d, 48, 48, 7);
  for (const auto& [src, dst, n] :
       {std::tuple{0, 0, 16}, {3, 9, 21}, {8, 16, 32}, {79, 1, 1}, {5, 5, 0}}) {
    copy_rows(from.device(), src, to.device(), dst, n, nullptr);
    oracle_->copy_rows(from.host(), src, to.host(), dst, n);
    ASSERT_EQ(to.device_k(), to.k) << src << " " << dst << " " << n;
    ASSERT_EQ(to.device_v(), to.v);
  }
  for (const auto& [src, dst, n] : {std::tuple{9, 1, 70}, {24, 16, 56}, {1, 0, 79}, {4, 4, 8}}) {
    copy_rows(from.device(), src, from.device(), dst, n, nullptr);
    oracle_->copy_rows(from.host(), src, from.host(), dst, n);
    ASSERT_EQ(from.device_k(), from.k) << src << " " << dst << " " << n;
    ASSERT_EQ(from.device_v(), from.v);
  }
}

TEST_P(KvTest, GatherChunks) {
  const auto [heads, kv_heads, d] = shape();
  for (const int chunk : {8, 3, 16}) {
    TestCache from(a_, type(), kv_heads, d, 80, 80, 1), to(a_, type(), kv_heads, d, 48, 48, 7);
    std::vector<std::int32_t> ids;
    for (std::int32_t h = 0; h < kv_heads; ++h) {
      for (const std::int32_t id : {0, 4, 2 + h % 2}) ids.push_back(id);
    }
    const OnDevice<std::int32_t> di(a_, ids);
    gather_chunks(from.device(), make_view(di.data(), DType::kI32, {kv_heads, 3}), chunk,
                  to.device(), nullptr);
    oracle_->gather_chunks(from.host(), make_view(ids.data(), DType::kI32, {kv_heads, 3}), chunk,
                           to.host());
    ASSERT_EQ(to.device_k(), to.k) << chunk;
    ASSERT_EQ(to.device_v(), to.v) << chunk;
  }
}

TEST_P(KvTest, ScoreChunksMatchesTheOracle) {
  const auto [heads, kv_heads, d] = shape();
  for (const int chunk : {8, 5}) {
    TestCache cache(a_, type(), kv_heads, d, 96, 96, 1);
    const std::int64_t n = 96 / chunk;
    std::vector<std::uint16_t> q = to_halves(normals(count(heads, d), 3), type());
    const OnDevice<std::uint16_t> dq(a_, q);
    const OnDevice<float> scores(a_, std::vector<float>(count(kv_heads, n)));
    score_chunks(make_view(dq.data(), type(), {heads, d}), cache.device(), chunk, n,
                 make_view(scores.data(), DType::kF32, {kv_heads, n}), nullptr);
    std::vector<float> expected(count(kv_heads, n));
    oracle_->score_chunks(make_view(q.data(), type(), {heads, d}), cache.host(), chunk, n,
                          make_view(expected.data(), DType::kF32, {kv_heads, n}));
    const std::vector<float> got = scores.values();
    // Sums of group, chunk and d terms; a query of at most 4.5 group, a mean of at most 4.5.
    const double terms = heads / kv_heads + chunk + d + 4;
    const double error = terms * 0x1p-24 * d * 4.5 * 4.5 * (heads / kv_heads);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], error) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, KvTest,
                         ::testing::Combine(::testing::Values(DType::kF16, DType::kBF16),
                                            ::testing::Values(Shape{2, 2, 64}, Shape{6, 2, 64},
                                                              Shape{4, 1, 128})));

TEST(TopChunks, AreTheOraclesAlsoAmongEquals) {
  CudaAllocator a(0);
  const auto oracle = make_reference_backend();
  std::mt19937 random(5);
  for (const std::int64_t n : {1, 2, 3, 17, 64, 300, 2048, 5000}) {
    std::vector<float> scores(count(3, n));
    for (float& s : scores)
      s = static_cast<float>(static_cast<int>(random() % 9) - 4) / 2;  // ties, -0
    scores[0] = -INFINITY;
    for (float& s : scores)
      if (s == 0 && random() % 2 == 0) s = -0.0F;
    const OnDevice<float> ds(a, scores);
    const Buffer workspace(a, top_chunks_bytes(3, n), Place::kDevice, MemTag::kWorkspace);
    for (const std::int64_t wanted : {std::int64_t{1}, (n + 1) / 2, n}) {
      const OnDevice<std::int32_t> ids(a, std::vector<std::int32_t>(count(3, wanted)));
      top_chunks(make_view(ds.data(), DType::kF32, {3, n}),
                 make_view(ids.data(), DType::kI32, {3, wanted}), workspace.data(), nullptr);
      std::vector<std::int32_t> expected(count(3, wanted));
      oracle->top_chunks(make_view(scores.data(), DType::kF32, {3, n}),
                         make_view(expected.data(), DType::kI32, {3, wanted}));
      ASSERT_EQ(ids.values(), expected) << n << " " << wanted;
    }
  }
}

}  // namespace
}  // namespace triforce::kernels
