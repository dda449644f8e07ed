// What a quantised cache holds depends on the full cache's rows and on how many are committed, and
// on nothing else.
#include "model/quantised_cache.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/tiny_model.h"

namespace triforce {
namespace {

using testing::largest_difference;
using testing::random_tokens;
using testing::Tiny;
using testing::tiny_config;

constexpr std::int64_t kPending = 40;

// A full cache and a quantised one over it, fed as rounds of verification do.
struct Scene {
  explicit Scene(Quantisation by, std::int64_t capacity = 512, int dense = 0)
      : by_(by), dense_(dense), t(tiny_config(4, 2, 16)), full(t.full(capacity)), cache(fresh()) {}
  std::unique_ptr<QuantisedCache> fresh() {
    const ModelConfig& c = t.weights.config;
    LaneMemory memory;
    return std::make_unique<QuantisedCache>(*t.backend, full, c.layers, c.heads, c.kv_heads,
                                            c.head_dim, kPending, t.weights.dtype, by_, dense_,
                                            memory);
  }
  // All of them are kept.
  void extend_full(std::span<const Token> tokens) {
    t.run(tokens, full, 32);
    full.commit(full.length());
  }
  // What the next tokens give; nothing of them stays.
  std::vector<float> probe(KvCache& c, std::span<const Token> tokens) {
    const std::int64_t before = c.length();
    std::vector<float> logits = t.run(tokens, c, std::ssize(tokens));
    c.truncate(before);
    return logits;
  }

 private:
  Quantisation by_;
  int dense_;

 public:
  Tiny t;
  FullCache full;
  std::unique_ptr<QuantisedCache> cache;
};

TEST(QuantisedCache, LessThanAGroupIsTheFullCacheBitForBit) {
  for (const auto by : {Quantisation::kInt8, Quantisation::kInt4}) {
    Scene s(by);
    s.extend_full(random_tokens(63, 61, 1));
    s.cache->commit(63);
    const std::vector<Token> next = random_tokens(5, 61, 2);
    EXPECT_EQ(s.probe(*s.cache, next), s.probe(s.full, next));
    s.extend_full(random_tokens(1, 61, 3));
    s.cache->commit(64);
    EXPECT_NE(s.probe(*s.cache, next), s.probe(s.full, next));
  }
}

// The errors of codes: some, less of 8 bits than of 4.
TEST(QuantisedCache, EightBitsAreNearerThanFour) {
  double error[2] = {};
  for (const auto by : {Quantisation::kInt8, Quantisation::kInt4}) {
    Scene s(by);
    s.extend_full(random_tokens(200, 61, 1));
    s.cache->commit(200);
    const std::vector<Token> next = random_tokens(8, 61, 2);
    const std::vector<float> want = s.probe(s.full, next);
    const auto size = static_cast<double>(*std::ranges::max_element(want));
    error[by == Quantisation::kInt4] =
        largest_difference(s.probe(*s.cache, next), want) / std::abs(size);
  }
  EXPECT_GT(error[0], 0);
  EXPECT_LT(4 * error[0], error[1]);
  EXPECT_LT(error[1], 0.2);
}

// Drafts of any length, verified and kept in part; marks, returns to them, and new prompts.
TEST(QuantisedCache, HoldsWhatOneCommitOfTheSameTokensWould) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    Scene s(seed % 2 == 0 ? Quantisation::kInt8 : Quantisation::kInt4, 512, seed == 3 ? 1 : 0);
    std::mt19937 random(seed);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
      return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
    };
    const auto some = [&](std::int64_t n) {
      return random_tokens(n, 61, static_cast<std::uint32_t>(random()));
    };
    s.extend_full(some(pick(1, 190)));
    s.cache->commit(pick(1, s.full.length()));
    s.cache->commit(s.full.length());
    s.cache->mark();
    s.full.mark();
    for (int round = 0; round < 14 && s.full.length() + 2 * kPending < 512; ++round) {
      if (pick(1, 6) == 1) {
        s.full.rewind();
        s.cache->rewind();
      }
      const std::vector<Token> draft = some(pick(1, kPending));
      s.t.run(draft, *s.cache, pick(1, 16));
      s.t.run(draft, s.full, std::ssize(draft));
      const std::int64_t kept = s.full.committed() + pick(0, std::ssize(draft));
      s.full.truncate(kept);
      s.full.commit(kept);
      if (pick(1, 2) == 1) s.cache->truncate(kept);  // else what follows was kept for later
      const std::int64_t ahead = s.cache->length() - kept;
      s.cache->commit(kept);
      ASSERT_EQ(s.cache->committed(), kept);
      ASSERT_EQ(s.cache->length(), kept + ahead);
      s.cache->truncate(kept);
      const auto other = s.fresh();
      other->commit(kept);
      const std::vector<Token> next = some(pick(1, 9));
      ASSERT_EQ(s.probe(*s.cache, next), s.probe(*other, next)) << "round " << round;
    }
  }
}

// Rows of tokens that are not committed yet move with the groups.
TEST(QuantisedCache, KeepsWhatIsAheadOfACommit) {
  Scene s(Quantisation::kInt4);
  s.extend_full(random_tokens(120, 61, 1));
  s.cache->commit(120);
  const std::vector<Token> ahead = random_tokens(30, 61, 2), next = random_tokens(4, 61, 3);
  s.t.run(ahead, *s.cache, 30);
  s.extend_full(std::span(ahead).first(10));
  // As tokens 130 to 149 were fed: over 64 tokens in codes and the others in 16 bits.
  const auto rows = [&](const QuantisedCache& cache, std::int64_t first_row) {
    KvView kv = cache.homes(1).front();
    std::vector<float> all;
    for (int h = 0; h < kv.kv_heads; ++h) {
      const auto* keys = static_cast<const float*>(kv.k) + h * kv.head_stride;
      all.insert(all.end(), keys + first_row * 16, keys + (first_row + 20) * 16);
    }
    return all;
  };
  const std::vector<float> before = rows(*s.cache, 130 - 64);
  s.cache->commit(130);
  EXPECT_EQ(s.cache->length(), 150);
  EXPECT_EQ(rows(*s.cache, 130 - 128), before);
}

// Where nothing verifies, its own rows become the full cache's, and then its codes.
TEST(QuantisedCache, HandsItsRowsOver) {
  Scene s(Quantisation::kInt4);
  s.extend_full(random_tokens(100, 61, 1));
  s.cache->commit(100);
  const std::vector<Token> more = random_tokens(30, 61, 2), next = random_tokens(4, 61, 3);
  s.t.run(more, *s.cache, 7);
  s.cache->hand_over(s.full, 130);
  EXPECT_EQ(s.full.length(), 130);
  s.full.commit(130);
  s.cache->commit(130);
  const auto other = s.fresh();
  other->commit(130);
  EXPECT_EQ(s.probe(*s.cache, next), s.probe(*other, next));
  Scene exact(Quantisation::kInt4);
  exact.extend_full(random_tokens(100, 61, 1));
  exact.extend_full(more);
  EXPECT_NE(s.probe(s.full, next), exact.probe(exact.full, next));
}

}  // namespace
}  // namespace triforce
