// The caches over the CPU backend, whose rows lie in blocks of 16 tokens and whose attention is
// split: what holds on the reference backend must hold there.
#include <gtest/gtest.h>

#include "cpu/cpu_backend.h"
#include "model/tiny_model.h"

namespace triforce {
namespace {

using testing::largest_difference;
using testing::random_tokens;
using testing::Tiny;
using testing::tiny_config;

std::unique_ptr<Backend> cpu_backend() { return make_cpu_backend({2, std::nullopt}); }

class CpuCaches : public ::testing::TestWithParam<DType> {};

// Beyond one split of the attention, with 8 query heads on one of keys, so that scratch that was
// sized for less would show.
TEST_P(CpuCaches, LongContextsWithManyQueriesPerKeyFit) {
  ModelConfig c = tiny_config(8, 1, 16);
  c.max_position = 4096;
  const std::unique_ptr<Backend> b = cpu_backend();
  const ModelWeights w = random_weights(*b, c, GetParam(), 3, MemTag::kTargetWeights, {});
  FullCache full(*b, c.layers, c.kv_heads, c.head_dim, 4096, 1024, w.dtype);
  LlamaModel model(*b, w, 4096, 1024, 32);
  const std::vector<Token> tokens = random_tokens(4000, c.vocab, 5);
  std::size_t at = 0;
  for (; at < 3600; at += 900) {
    model.forward(std::span(tokens).subspan(at, 900), full, Logits::kNone, nullptr,
                  RowPath::kThroughput);
  }
  model.forward(std::span(tokens).subspan(at, 32), full, Logits::kAll);
  full.truncate(3600);
  LastQueries queries(*b, c.layers, c.heads, c.head_dim);
  RetrievalCache retrieval(*b, full, c.layers, c.heads, c.kv_heads, c.head_dim, 64, w.dtype,
                           {512, 8, Selection::kAttention, {}});
  testing::end_prompt(model, std::span(tokens).subspan(at, 32), full, retrieval, queries);
  model.forward(std::span(tokens).subspan(at + 31, 1), full, Logits::kNone);
  retrieval.commit(3632);
  const auto round = std::span(tokens).subspan(3632, 32);
  const std::vector<float> drafted =
      testing::host_copy(*b, model.forward(round, retrieval, Logits::kAll));
  const std::vector<float> verified =
      testing::host_copy(*b, model.forward(round, full, Logits::kAll, &retrieval));
  EXPECT_EQ(retrieval.selections(), 1);
  EXPECT_GT(largest_difference(drafted, verified), 0);
  // The same rows one by one: verification must not depend on the number of rows.
  full.truncate(3632);
  std::vector<float> single;
  for (const Token& t : round) {
    const std::vector<float> row =
        testing::host_copy(*b, model.forward({&t, 1}, full, Logits::kLast));
    single.insert(single.end(), row.begin(), row.end());
  }
  EXPECT_EQ(single, verified);
}

// Scratch grows with the context, which a cache knows, times the queries per key, which the model
// knows: passes of as many rows as there may be, to the end of a cache that fills its RoPE table.
TEST(CpuScratch, IsReservedForEveryContextAndGroup) {
  ModelConfig c = tiny_config(16, 1, 64);
  c.layers = 1;
  const std::unique_ptr<Backend> b = cpu_backend();
  const ModelWeights w = random_weights(*b, c, DType::kF32, 3, MemTag::kTargetWeights, {});
  FullCache full(*b, c.layers, c.kv_heads, c.head_dim, 8192, 512, w.dtype);
  LlamaModel model(*b, w, 8192, 32, 1);
  const std::vector<Token> tokens = random_tokens(32, c.vocab, 5);
  for (const std::int64_t n : {512, 512 - 32}) {  // zero rows will do
    while (full.length() + n <= 8192 - 32) {
      full.begin(n, n, RowPath::kThroughput);
      full.end();
    }
  }
  ASSERT_EQ(full.length(), 8192 - 32);
  EXPECT_NO_THROW(model.forward(tokens, full, Logits::kLast));
}

TEST_P(CpuCaches, RetrievalWithRoomForEverythingIsTheFullCacheBitForBit) {
  Tiny t(tiny_config(4, 2, 16), GetParam(), 7, 1600, cpu_backend());
  const ModelConfig& c = t.weights.config;
  // One prompt within a split of the attention, one beyond.
  for (const std::int64_t prompt : {43, 700}) {
    FullCache full = t.full(1600);
    RetrievalCache retrieval(*t.backend, full, c.layers, c.heads, c.kv_heads, c.head_dim, 32,
                             t.weights.dtype, {800, 8, Selection::kMeanKey, {}});
    const std::vector<Token> tokens = random_tokens(prompt + 40, c.vocab, 4);
    const auto all = std::span(tokens);
    t.run(all.first(static_cast<std::size_t>(prompt - 20)), full, 60);
    testing::end_and_feed_again(t, all.subspan(static_cast<std::size_t>(prompt - 20), 20), full,
                                retrieval);
    for (std::int64_t at = prompt; at < prompt + 40; at += 8) {
      const auto round = all.subspan(static_cast<std::size_t>(at), 8);
      const std::vector<float> drafted = t.run(round, retrieval, 3);
      EXPECT_EQ(drafted, t.run(round, full, 8, &retrieval)) << "prompt " << prompt << " at " << at;
      retrieval.commit(at + 8);
    }
  }
}

// Keys rounded before or after their rotation: the difference is of the order of what rounding the
// rows does at all, which a cache of f32 rows shows.
TEST_P(CpuCaches, StreamingWindowOfTheWholeLengthIsTheFullCache) {
  Tiny t(tiny_config(4, 2, 16), GetParam(), 7, 512, cpu_backend());
  const ModelConfig& c = t.weights.config;
  const std::vector<Token> tokens = random_tokens(90, c.vocab, 3);
  const DType coarser = GetParam() == DType::kF32 ? DType::kF16 : GetParam();
  FullCache fine(*t.backend, c.layers, c.kv_heads, c.head_dim, 128, 64, DType::kF32);
  FullCache coarse(*t.backend, c.layers, c.kv_heads, c.head_dim, 128, 64, coarser);
  const double effect = largest_difference(t.run(tokens, fine, 1), t.run(tokens, coarse, 1));
  // f16 rounds to 2^-11 where f32 rounds to 2^-24, and f32 sums of up to 100 terms add roundings.
  const double tolerance = GetParam() == DType::kF32 ? effect * 0x1p-13 * 100 : 4 * effect;
  FullCache full = t.full();
  StreamingCache streaming(*t.backend, c.layers, c.kv_heads, c.head_dim, 96, 64, t.weights.dtype);
  for (std::size_t i = 0; i < tokens.size(); i += 9) {
    const auto part = std::span(tokens).subspan(i, 9);
    EXPECT_LE(largest_difference(t.run(part, full, 9), t.run(part, streaming, 4)), tolerance) << i;
    streaming.commit(streaming.length());
  }
}

// A row of the first layer depends on its token alone, so that a cache which evicted is the one
// that never saw what it dropped, bit for bit: sinks and recent tokens of budgets down to 1.
TEST_P(CpuCaches, StreamingKeepsSinksAndRecentTokensOfAnyBudget) {
  ModelConfig c = tiny_config(4, 2, 16);
  c.layers = 1;
  Tiny t(c, GetParam(), 7, 512, cpu_backend());
  const std::vector<Token> tokens = random_tokens(140, c.vocab, 6);
  const std::vector<Token> probe = {3, 1, 4};
  for (const std::int64_t budget : {1, 2, 3, 15, 20, 33, 47}) {
    StreamingCache cache(*t.backend, c.layers, c.kv_heads, c.head_dim, budget, 40, t.weights.dtype);
    for (std::size_t i = 0; i < tokens.size(); i += 7) {
      t.run(std::span(tokens).subspan(i, 7), cache, 4);
      cache.commit(cache.length());
    }
    const auto sinks = std::min<std::ptrdiff_t>(StreamingCache::kSinks, budget / 2);
    std::vector<Token> kept(tokens.begin(), tokens.begin() + sinks);
    kept.insert(kept.end(), tokens.end() - (budget - sinks), tokens.end());
    StreamingCache fresh(*t.backend, c.layers, c.kv_heads, c.head_dim, 96, 64, t.weights.dtype);
    t.run(kept, fresh, 8);
    EXPECT_EQ(t.run(probe, cache, 3), t.run(probe, fresh, 3)) << budget;
  }
}

// Eviction and rewind move the right rows: what follows has the bits of the first time.
TEST_P(CpuCaches, RewindRepeatsTheBits) {
  Tiny t(tiny_config(4, 2, 16), GetParam(), 7, 512, cpu_backend());
  const ModelConfig& c = t.weights.config;
  const std::vector<Token> tokens = random_tokens(200, c.vocab, 8);
  FullCache full = t.full(256);
  StreamingCache streaming(*t.backend, c.layers, c.kv_heads, c.head_dim, 64, 40, t.weights.dtype);
  RetrievalCache retrieval(*t.backend, full, c.layers, c.heads, c.kv_heads, c.head_dim, 16,
                           t.weights.dtype, {48, 4, Selection::kAttention, {}});
  const auto all = std::span(tokens);
  t.run(all.first(64), full, 64);
  testing::end_and_feed_again(t, all.subspan(64, 37), full, retrieval);
  full.mark();
  retrieval.mark();
  for (std::size_t i = 0; i < 101; i += 25) {
    t.run(all.subspan(i, std::min<std::size_t>(25, 101 - i)), streaming, 25);
    streaming.commit(streaming.length());
  }
  streaming.mark();
  const auto generate = [&] {
    std::vector<float> logits;
    for (std::size_t at = 101; at < 191; at += 6) {
      for (const std::vector<float>& part :
           {t.run(all.subspan(at, 6), streaming, 2), t.run(all.subspan(at, 6), retrieval, 2),
            t.run(all.subspan(at, 6), full, 6, &retrieval)}) {
        logits.insert(logits.end(), part.begin(), part.end());
      }
      full.commit(full.length());
      retrieval.commit(full.length());
      streaming.commit(streaming.length());
    }
    full.rewind();
    retrieval.rewind();
    streaming.rewind();
    return logits;
  };
  const std::vector<float> first = generate();
  EXPECT_EQ(generate(), first);
}

INSTANTIATE_TEST_SUITE_P(DTypes, CpuCaches,
                         ::testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& c) { return std::string(to_string(c.param)); });

}  // namespace
}  // namespace triforce
