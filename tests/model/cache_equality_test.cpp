// A cache that has room for everything gives the full cache's answer.
#include <gtest/gtest.h>

#include <algorithm>

#include "model/tiny_model.h"

namespace triforce {
namespace {

using testing::largest_difference;
using testing::random_tokens;
using testing::Tiny;
using testing::tiny_config;

// What rounding every stored key and value to f32 may change in the logits: the effect of rounding
// them to f16 (2^-11), measured on the same tokens, scaled by 2^-24 / 2^-11, times 8 because both
// are single draws of rounding; and one rounding of the logits themselves.
double f32_storage_tolerance(Tiny& t, std::span<const Token> tokens) {
  const ModelConfig& c = t.weights.config;
  FullCache exact = t.full();
  FullCache coarse(*t.backend, c.layers, c.kv_heads, c.head_dim, 256, 64, DType::kF16);
  const std::vector<float> a = t.run(tokens, exact, 1);
  const std::vector<float> b = t.run(tokens, coarse, 1);
  const double effect = largest_difference(a, b);
  EXPECT_GT(effect, 0);
  const auto magnitude = static_cast<double>(*std::max_element(
      a.begin(), a.end(), [](float x, float y) { return std::abs(x) < std::abs(y); }));
  return 8 * effect * 0x1p-13 + std::abs(magnitude) * 0x1p-23;
}

TEST(StreamingCache, WindowOfTheWholeLengthIsTheFullCache) {
  for (const int kv_heads : {1, 2, 4}) {
    Tiny t(tiny_config(4, kv_heads));
    const ModelConfig& c = t.weights.config;
    const std::vector<Token> tokens = random_tokens(90, c.vocab, 3);
    const double tolerance = f32_storage_tolerance(t, tokens);
    FullCache full = t.full();
    const std::vector<float> expected = t.run(tokens, full, 1);
    for (const std::int64_t step : {1, 9, 40}) {
      StreamingCache streaming(*t.backend, c.layers, c.kv_heads, c.head_dim, 96, 64,
                               t.weights.dtype);
      std::vector<float> got;
      for (std::int64_t i = 0; i < 90; i += step) {
        const auto n = static_cast<std::size_t>(std::min<std::int64_t>(step, 90 - i));
        const std::vector<float> part =
            t.run(std::span(tokens).subspan(static_cast<std::size_t>(i), n), streaming, step);
        got.insert(got.end(), part.begin(), part.end());
        streaming.commit(streaming.length());
      }
      EXPECT_LE(largest_difference(expected, got), tolerance) << "step " << step;
    }
  }
}

TEST(StreamingCache, ASmallerWindowIsNotTheFullCache) {
  Tiny t(tiny_config());
  const ModelConfig& c = t.weights.config;
  const std::vector<Token> tokens = random_tokens(90, c.vocab, 3);
  FullCache full = t.full();
  const std::vector<float> expected = t.run(tokens, full, 1);
  StreamingCache streaming(*t.backend, c.layers, c.kv_heads, c.head_dim, 48, 64, t.weights.dtype);
  std::vector<float> got;
  for (const Token& token : tokens) {
    const std::vector<float> part = t.run({&token, 1}, streaming, 1);
    got.insert(got.end(), part.begin(), part.end());
    streaming.commit(streaming.length());
  }
  EXPECT_GT(largest_difference(expected, got), 100 * f32_storage_tolerance(t, tokens));
}

// Prompt into the full cache, selection, then drafts and verifications; with a budget for all of it
// the retrieval cache's rows are the full cache's rows in the same order, so the bits agree.
TEST(RetrievalCache, BudgetForEverythingIsTheFullCacheBitForBit) {
  for (const std::int64_t prompt : {1, 5, 16, 17, 43}) {
    for (const Selection selection : {Selection::kMeanKey, Selection::kAttention}) {
      Tiny t(tiny_config(4, 2));
      const ModelConfig& c = t.weights.config;
      FullCache full = t.full();
      RetrievalCache retrieval(*t.backend, full, c.layers, c.heads, c.kv_heads, c.head_dim, 16,
                               t.weights.dtype, {72, 4, selection, {}});
      const std::vector<Token> tokens = random_tokens(prompt + 25, c.vocab, 4);
      testing::end_and_feed_again(t, std::span(tokens).first(static_cast<std::size_t>(prompt)),
                                  full, retrieval);
      EXPECT_EQ(retrieval.length(), prompt);
      retrieval.mark();
      for (std::size_t i = static_cast<std::size_t>(prompt); i < tokens.size(); i += 5) {
        const auto round = std::span(tokens).subspan(i, 5);
        const std::vector<float> drafted = t.run(round, retrieval, 2);
        EXPECT_EQ(drafted, t.run(round, full, 5, &retrieval)) << "prompt " << prompt << " at " << i;
        const auto length = static_cast<std::int64_t>(i) + 5;
        retrieval.truncate(length - 2);
        retrieval.commit(length - 2);
        full.commit(length - 2);
        t.run(round.last(2), retrieval, 2);
      }
      EXPECT_EQ(retrieval.length(), prompt + 25);
    }
  }
}

}  // namespace
}  // namespace triforce
