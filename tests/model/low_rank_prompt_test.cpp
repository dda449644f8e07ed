// The low-rank form of a prompt's keys, and what a retrieval cache holds of it, on the reference
// backend, whose rows are plain.
#include "model/low_rank_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "model/tiny_model.h"

namespace triforce {
namespace {

using testing::random_tokens;
using testing::Tiny;

constexpr int kLayers = 2, kHeads = 3, kDim = 16, kChunk = 4, kWidth = kHeads * kDim;
constexpr std::int64_t kTokens = 90, kChunks = kTokens / kChunk;

bool go_on(int /*done*/) { return true; }

// A full cache whose keys before RoPE are given, and the form of them.
class LowRank : public ::testing::Test {
 protected:
  LowRank()
      : backend_(make_reference_backend(8)),
        rope_(make_rope_table(*backend_, testing::tiny_config(kHeads, kHeads, kDim), 512,
                              MemTag::kTargetWeights)),
        full_(*backend_, kLayers, kHeads, kDim, 128, 128, DType::kF32) {}

  using Keys = std::vector<std::vector<float>>;  // of each token [kWidth]
  static Keys random_keys(int rank, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto drawn = [&](int n) {
      std::vector<float> v(static_cast<std::size_t>(n));
      for (float& x : v) x = normal(random);
      return v;
    };
    Keys basis, keys(kTokens, std::vector<float>(kWidth));
    for (int i = 0; i < rank; ++i) basis.push_back(drawn(kWidth));
    for (std::vector<float>& key : keys) {
      for (const std::vector<float>& direction : basis) {
        const float a = drawn(1).front();
        for (std::size_t j = 0; j < kWidth; ++j) key[j] += a * direction[j];
      }
    }
    return keys;
  }
  // The same in each layer, rotated as a model does.
  void fill(const Keys& keys) {
    full_.reset();
    full_.begin(kTokens, kTokens, RowPath::kThroughput);
    std::vector<float> qkv;
    std::vector<std::int32_t> positions;
    for (std::size_t t = 0; t < kTokens; ++t) {
      qkv.insert(qkv.end(), kWidth, 0.0F);
      qkv.insert(qkv.end(), keys[t].begin(), keys[t].end());
      qkv.insert(qkv.end(), kWidth, static_cast<float>(t));
      positions.push_back(static_cast<std::int32_t>(t));
    }
    std::vector<float> q(kTokens * kWidth);
    auto length = static_cast<std::int32_t>(kTokens);
    for (int l = 0; l < kLayers; ++l) {
      KvView kv = full_.range(l, 0, 0);
      kv.length = &length;
      backend_->rope_append(make_view(qkv.data(), DType::kF32, {kTokens, 3 * kWidth}),
                            make_view(positions.data(), DType::kI32, {kTokens}), rope_.view(),
                            make_view(q.data(), DType::kF32, {kTokens, kHeads, kDim}), kv);
    }
    full_.end();
    full_.commit(kTokens);
  }
  LowRankPrompt form(int rank, int outliers = 0) {
    return {*backend_,
            {.layers = kLayers,
             .kv_heads = kHeads,
             .head_dim = kDim,
             .capacity = 128,
             .chunk_size = kChunk,
             .rank = rank,
             .outlier_chunks = outliers}};
  }
  double key(const KvView& kv, int h, std::int64_t row, int j) const {
    return static_cast<double>(
        static_cast<const float*>(kv.k)[h * kv.head_stride + row * kDim + j]);
  }
  // The sum of squared differences between the rows of all whole chunks and what `form` makes of
  // them. Of a form that keeps none but the first one and the local ones they are not counted.
  double error_of(const LowRankPrompt& form, int layer) {
    std::vector<std::int32_t> ids;
    for (int h = 0; h < kHeads; ++h) {
      for (std::int32_t c = 0; c < kChunks; ++c) ids.push_back(c);
    }
    const KvStorage rows(*backend_, 1, kHeads, kDim, 128, DType::kF32, MemTag::kKvRetrieval);
    const KvView to = rows.layer(0), from = full_.homes(layer).front();
    form.expand(layer, {0, kHeads}, make_view(ids.data(), DType::kI32, {kHeads, kChunks}), to);
    double sum = 0;
    for (int h = 0; h < kHeads; ++h) {
      for (std::int64_t r = form.exact_chunks() * kChunk; r < kChunks * kChunk; ++r) {
        for (int j = 0; j < kDim; ++j) sum += std::pow(key(to, h, r, j) - key(from, h, r, j), 2);
      }
    }
    return sum;
  }

  std::unique_ptr<Backend> backend_;
  RopeTable rope_;
  FullCache full_;
};

TEST_F(LowRank, KeysOfThatRankAreRebuilt) {
  fill(random_keys(16, 1));
  LowRankPrompt exact = form(16);
  ASSERT_TRUE(exact.read(full_, kTokens, rope_.view(), go_on));
  EXPECT_EQ(exact.exact_chunks(), 1 + LowRankPrompt::kLocalChunks);
  for (int l = 0; l < kLayers; ++l) EXPECT_LT(error_of(exact, l), 1e-6);
}

// No form of a rank has less error than that of the greatest directions: what is left falls with
// the rank to nothing, and is about the share that the others have of random keys.
TEST_F(LowRank, ErrorFallsWithTheRank) {
  const Keys keys = random_keys(kWidth, 2);
  fill(keys);
  double all = 0, last = INFINITY;
  for (const std::vector<float>& key : keys) {
    for (const float x : key) all += static_cast<double>(x * x);
  }
  for (const int rank : {16, 32, 48}) {
    LowRankPrompt some = form(rank);
    ASSERT_TRUE(some.read(full_, kTokens, rope_.view(), go_on));
    const double error = error_of(some, 1);
    EXPECT_LT(error, last);
    if (rank < kWidth) {
      EXPECT_LT(error, all * (kWidth - rank) / kWidth);  // of directions chosen at random
      EXPECT_GT(error, all * 1e-3);
    } else {
      EXPECT_LT(error, all * 1e-10);
    }
    last = error;
  }
}

// Chunks whose keys differ from their mean are selected first, in the order of their ids.
TEST_F(LowRank, OutliersKeepTheirKeys) {
  Keys keys = random_keys(kWidth, 3);
  for (std::size_t t = 0; t < kTokens; ++t) {
    // All keys of a chunk are nearly one, turned by as little as the positions in it differ.
    keys[t] = keys[t / kChunk * kChunk];
  }
  for (const int chunk : {7, 12}) {
    std::vector<float>& key = keys[static_cast<std::size_t>(chunk * kChunk + 1)];
    for (float& x : key) x = -x;
  }
  fill(keys);
  LowRankPrompt two = form(16, 2);
  ASSERT_TRUE(two.read(full_, kTokens, rope_.view(), go_on));
  EXPECT_EQ(two.exact_chunks(), 1 + 2 + LowRankPrompt::kLocalChunks);
  constexpr std::int64_t kAll = 128 / kChunk;
  std::vector<float> scores(kHeads * kAll);
  for (int h = 0; h < kHeads; ++h) {
    for (std::int64_t c = 0; c < kAll; ++c) {
      scores[static_cast<std::size_t>(h * kAll + c)] = static_cast<float>(c % 5);
    }
  }
  two.favour(1, {0, kHeads}, make_view(scores.data(), DType::kF32, {kHeads, kAll}));
  std::vector<std::int32_t> ids(kHeads * 9);
  const TensorView chosen = make_view(ids.data(), DType::kI32, {kHeads, 9});
  TensorView scored = make_view(scores.data(), DType::kF32, {kHeads, kAll});
  backend_->top_chunks(scored.slice(1, 0, kChunks), chosen);
  for (int h = 0; h < kHeads; ++h) {
    EXPECT_EQ(std::vector(ids.begin() + h * 9, ids.begin() + (h + 1) * 9),
              (std::vector<std::int32_t>{0, 7, 12, 18, 19, 20, 21, 4, 9}));
  }
}

TEST_F(LowRank, StopsAndForgets) {
  fill(random_keys(kWidth, 4));
  LowRankPrompt one = form(16);
  int calls = 0;
  EXPECT_FALSE(one.read(full_, kTokens, rope_.view(), [&](int done) {
    EXPECT_EQ(done, ++calls);
    return false;
  }));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(one.exact_chunks(), 0);
  EXPECT_TRUE(one.read(full_, kTokens, rope_.view(), go_on));
  one.clear();
  EXPECT_EQ(one.exact_chunks(), 0);
  Keys wrong = random_keys(kWidth, 5);
  wrong[44][5] = std::nanf("");
  fill(wrong);
  try {
    one.read(full_, kTokens, rope_.view(), go_on);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kNumeric) << e.what();
  }
}

// Through a retrieval cache: rows of exact chunks and of recent tokens are the full cache's, those
// of others the form's, and values are the full cache's everywhere; again after a rewind.
TEST(LowRankRetrieval, HoldsRebuiltKeys) {
  const ModelConfig config = testing::tiny_config(4, 2, 16);
  Tiny t(config);
  for (const RebuildPolicy policy :
       {RebuildPolicy{}, RebuildPolicy{RebuildPolicy::Kind::kToken, 0, 0}}) {
    FullCache full = t.full();
    RetrievalCache::Options options;
    options.budget = 64;
    options.chunk_size = 4;
    options.rebuild = policy;
    options.dense_layers = 1;
    options.key_rank = 16;
    options.outlier_chunks = 3;
    RetrievalCache cache(*t.backend, full, 2, 4, 2, 16, 16, DType::kF32, options);
    LastQueries queries(*t.backend, 2, 4, 16);
    const std::vector<Token> tokens = random_tokens(210, config.vocab, 1);
    const std::span<const Token> prompt = std::span(tokens).first(190);
    t.run(prompt.first(189), full, 32);
    t.model.forward(prompt.last(1), full, Logits::kNone, &queries);
    full.truncate(189);
    full.commit(189);
    ASSERT_TRUE(cache.read_prompt(t.model.rope(), go_on));
    cache.select_prompt(queries.view(), t.model.rope());
    cache.mark();
    const auto expect_rows = [&](std::int64_t recent) {
      const KvView small = cache.homes(1).front(), all = full.homes(1).front();
      const std::vector<std::int32_t> ids = cache.selected_chunks();
      const std::int64_t n = std::ssize(ids) / 2, intact = (64 - recent) / 4 * 4;
      constexpr std::int64_t kExact = 1 + 3 + LowRankPrompt::kLocalChunks;
      for (int h = 0; h < 2; ++h) {
        const auto row = [&](const KvView& kv, const void* part, std::int64_t r) {
          return static_cast<const float*>(part) + h * kv.head_stride + r * 16;
        };
        int same = 0, other = 0;
        for (std::int64_t r = 0; r < intact; ++r) {
          const std::int64_t token = ids[static_cast<std::size_t>(h * n + r / 4)] * 4 + r % 4;
          EXPECT_TRUE(std::equal(row(small, small.v, r), row(small, small.v, r) + 16,
                                 row(all, all.v, token)))
              << h << ' ' << r;
          const bool equal = std::equal(row(small, small.k, r), row(small, small.k, r) + 16,
                                        row(all, all.k, token));
          (equal ? same : other)++;
          EXPECT_EQ(equal, r < kExact * 4) << h << ' ' << r;
        }
        EXPECT_GT(same, 0);
        EXPECT_GT(other, 0);
      }
    };
    expect_rows(1);
    t.run(std::span(tokens).subspan(189, 8), full, 8);
    cache.commit(full.length());
    expect_rows(9);
    // A pass of one token, which selects again where each token does.
    t.model.forward(std::span(tokens).subspan(197, 1), cache, Logits::kNone);
    expect_rows(9);
    cache.rewind();
    expect_rows(1);
    cache.reset();
  }
}

}  // namespace
}  // namespace triforce
