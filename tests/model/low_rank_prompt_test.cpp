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
      for (std::int64_t r = form.expanded().first * kChunk; r < kChunks * kChunk; ++r) {
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
  EXPECT_EQ(exact.expanded().first, 1 + kLocalChunks);
  for (int l = 0; l < kLayers; ++l) EXPECT_LT(error_of(exact, l), 1e-6);
}

// What is left falls with the rank to nothing. Of random keys directions chosen without looking at
// them would leave the share that the others have; these leave less.
TEST_F(LowRank, ErrorFallsWithTheRank) {
  const Keys keys = random_keys(kWidth, 2);
  fill(keys);
  double all = 0, last = INFINITY;
  for (std::size_t t = (1 + kLocalChunks) * kChunk; t < kChunks * kChunk; ++t) {  // as error_of()
    for (const float x : keys[t]) all += static_cast<double>(x * x);
  }
  for (const int rank : {16, 32, 48}) {
    LowRankPrompt some = form(rank);
    ASSERT_TRUE(some.read(full_, kTokens, rope_.view(), go_on));
    const double error = error_of(some, 1);
    EXPECT_LT(error, last);
    if (rank < kWidth) {
      EXPECT_LT(error, 0.8 * all * (kWidth - rank) / kWidth);
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
  EXPECT_EQ(two.expanded().first, 1 + 2 + kLocalChunks);
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
  for (const int last : {0, 1}) {
    int most = 0;
    EXPECT_FALSE(one.read(full_, kTokens, rope_.view(), [&](int done) {
      most = std::max(most, done);
      return done < last;
    }));
    EXPECT_EQ(most, last);
    EXPECT_EQ(one.expanded().first, 0);
  }
  EXPECT_TRUE(one.read(full_, kTokens, rope_.view(), go_on));
  one.clear();
  EXPECT_EQ(one.expanded().first, 0);
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

// Through a retrieval cache of heads at one home or two: rows of exact chunks, of chunks after the
// prompt and of recent tokens are the full cache's, keys of others the form's, and values are the
// full cache's everywhere; again after a rewind.
class LowRankRetrieval : public ::testing::TestWithParam<RebuildPolicy::Kind> {};

TEST_P(LowRankRetrieval, HoldsRebuiltKeys) {
  constexpr std::int64_t kPrompt = 189, kRowsOfChunk = 4, kBudget = 64;
  const ModelConfig config = testing::tiny_config(4, 2, 16);
  Tiny t(config);
  for (const KvHomes& homes : {KvHomes{}, KvHomes{{2, 1}, 2}}) {
    FullCache full(*t.backend, 2, 2, 16, 256, 64, DType::kF32, homes);
    RetrievalCache::Options options;
    options.budget = kBudget;
    options.chunk_size = kRowsOfChunk;
    options.rebuild = {GetParam(), 8, 0};
    options.dense_layers = 1;
    options.key_rank = 16;
    options.outlier_chunks = 3;
    RetrievalCache cache(*t.backend, full, 2, 4, 2, 16, 16, DType::kF32, options);
    LastQueries queries(*t.backend, 2, 4, 16);
    const std::vector<Token> tokens = random_tokens(210, config.vocab, 1);
    t.run(std::span(tokens).first(kPrompt), full, 32);
    t.model.forward(std::span(tokens).subspan(kPrompt, 1), full, Logits::kNone, &queries);
    full.truncate(kPrompt);
    full.commit(kPrompt);
    ASSERT_TRUE(cache.read_prompt(t.model.rope(), go_on));
    cache.select_prompt(queries.view(), t.model.rope());
    cache.mark();
    const auto expect_rows = [&](std::int64_t recent) {
      const KvView small = cache.homes(1).front();
      const std::vector<std::int32_t> ids = cache.selected_chunks();
      const std::int64_t n = std::ssize(ids) / 2,
                         intact = (kBudget - recent) / kRowsOfChunk * kRowsOfChunk;
      constexpr std::int64_t kExact = 1 + 3 + kLocalChunks;
      for (int h = 0; h < 2; ++h) {
        const std::span<const KvView> places = full.homes(1);
        const KvView all =
            (places.size() == 1 ? places[0] : places[static_cast<std::size_t>(h)]).heads(h, 1);
        const auto row_of = [](const KvView& kv, int head, const void* part, std::int64_t r) {
          return std::span(static_cast<const float*>(part) + head * kv.head_stride + r * 16, 16);
        };
        int rebuilt = 0;
        for (std::int64_t r = 0; r < intact; ++r) {
          const std::int64_t id = ids[static_cast<std::size_t>(h * n + r / kRowsOfChunk)],
                             token = id * kRowsOfChunk + r % kRowsOfChunk;
          EXPECT_TRUE(
              std::ranges::equal(row_of(small, h, small.v, r), row_of(all, 0, all.v, token)))
              << h << ' ' << r;
          const bool own = r < kExact * kRowsOfChunk || (id + 1) * kRowsOfChunk > kPrompt;
          EXPECT_EQ(std::ranges::equal(row_of(small, h, small.k, r), row_of(all, 0, all.k, token)),
                    own)
              << h << ' ' << r;
          rebuilt += own ? 0 : 1;
        }
        EXPECT_GT(rebuilt, 8);
      }
    };
    expect_rows(1);
    t.run(std::span(tokens).subspan(kPrompt, 8), full, 8);
    cache.commit(full.length());
    expect_rows(9);
    // A pass over either cache may select again.
    if (GetParam() == RebuildPolicy::Kind::kEvery) {
      t.run(std::span(tokens).subspan(kPrompt + 8, 1), full, 1, &cache);
      EXPECT_EQ(cache.selections(), 1);
      expect_rows(1);
      full.truncate(kPrompt + 8);
    } else {
      t.run(std::span(tokens).subspan(kPrompt + 8, 1), cache, 1);
      expect_rows(9);
    }
    cache.rewind();
    expect_rows(1);
    cache.reset();
  }
}
INSTANTIATE_TEST_SUITE_P(Policies, LowRankRetrieval,
                         ::testing::Values(RebuildPolicy::Kind::kNever, RebuildPolicy::Kind::kToken,
                                           RebuildPolicy::Kind::kEvery));

}  // namespace
}  // namespace triforce
