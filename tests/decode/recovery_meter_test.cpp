// Recovered attention against softmaxes written out here in double, with what a cache holds found
// by its rows or by counting.
#include "decode/recovery_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "core/rounding.h"
#include "model/observers.h"
#include "model/tiny_model.h"

namespace triforce {
namespace {

using testing::random_tokens;
using testing::Tiny;
using testing::tiny_config;

constexpr int kLayers = 3, kHeads = 4, kDim = 8;
constexpr std::int64_t kPrompt = 101, kBudget = 32;

ModelConfig config(int kv_heads) {
  ModelConfig c = tiny_config(kHeads, kv_heads, kDim);
  c.layers = kLayers;
  return c;
}

// Keeps the first query of every layer, and passes all on.
class Recorder final : public ForwardingObserver {
 public:
  Recorder(Backend& b, LayerObserver& to) : ForwardingObserver(to), b_(b) {}
  void on_range(int layer, TensorView q, const KvView& kv, TensorView mass) override {
    queries.resize(kLayers);
    queries[static_cast<std::size_t>(layer)] = testing::host_copy(b_, q.rows(0, 1));
    ForwardingObserver::on_range(layer, q, kv, mass);
  }
  std::vector<std::vector<float>> queries;  // [layer][H d]

 private:
  Backend& b_;
};

using Held = std::function<std::set<std::int64_t>(int layer, int kv_head)>;

// A row of one head in a cache of the reference backend, which keeps them plain.
std::vector<float> row_of(const void* rows, const KvView& kv, int head, std::int64_t row) {
  const auto* const at = static_cast<const float*>(rows) + head * kv.head_stride + row * kDim;
  return {at, at + kDim};
}

struct Scene {
  Scene(int kv_heads, std::uint32_t seed)
      : heads_kv(kv_heads),
        t(config(kv_heads)),
        full(t.full()),
        tokens(random_tokens(220, 61, seed)) {}

  // Mean over the query heads of the share of the softmax of the query of `query_layer` over the
  // keys of `layer`, up to `position`.
  double expected(const Recorder& seen, int layer, int query_layer, std::int64_t position,
                  const Held& held) {
    const KvView kv = full.range(layer, 0, 0);
    const std::vector<float>& q = seen.queries[static_cast<std::size_t>(query_layer)];
    const int group = kHeads / heads_kv;
    double sum = 0;
    for (int h = 0; h < kHeads; ++h) {
      const std::set<std::int64_t> there = held(layer, h / group);
      double all = 0, of_held = 0;
      for (std::int64_t r = 0; r <= position; ++r) {
        const std::vector<float> key = row_of(kv.k, kv, h / group, r);
        double dot = 0;
        for (int j = 0; j < kDim; ++j) {
          dot += double{q[static_cast<std::size_t>(h * kDim + j)]} *
                 double{key[static_cast<std::size_t>(j)]};
        }
        const double p = std::exp(dot / std::sqrt(double{kDim}));
        all += p;
        if (there.contains(r)) of_held += p;
      }
      sum += of_held / all;
    }
    return sum / kHeads;
  }

  // Rounds of drafts and verifications, some of which keep all, some few. `held` says before a
  // verification which tokens the small cache has for the token at `position`.
  void compare(StoredCache& small, LayerObserver* next, int dense, bool selects,
               const std::function<Held(std::int64_t position)>& held_at) {
    RecoveryMeter meter(*t.backend, full, small, kLayers, kHeads, heads_kv, kDim);
    std::optional<BothObservers> both;
    if (next != nullptr) both.emplace(meter.verifications(), *next);
    std::vector<double> sums(kLayers);
    double wrong = 0;
    std::int64_t rounds = 0;
    for (const auto& [guesses, kept] : {std::pair{3, 1}, {3, 3}, {1, 1}, {1, 0}, {4, 4}, {5, 2}}) {
      const std::int64_t position = full.committed();
      const auto feed = [&](std::int64_t begin, std::int64_t end, KvCache& cache, std::int64_t step,
                            LayerObserver* observer) {
        t.run(std::span(tokens).subspan(static_cast<std::size_t>(begin),
                                        static_cast<std::size_t>(end - begin)),
              cache, step, observer);
      };
      // What is held changes from token to token where each selects for itself.
      feed(small.length(), position + 1, small, small.max_append() == 1 ? 1 : 8, &meter.drafts());
      const Held held = held_at(position);
      feed(position + 1, position + guesses, small, 1, &meter.drafts());
      Recorder seen(*t.backend, both ? static_cast<LayerObserver&>(*both) : meter.verifications());
      const RecoveryCounters before = meter.counters();
      feed(position, position + guesses + 1, full, 8, &seen);
      ++rounds;
      ASSERT_EQ(meter.counters().rows, rounds);
      for (int l = 0; l < kLayers; ++l) {
        const auto i = static_cast<std::size_t>(l);
        const double share = expected(seen, l, l, position, l < dense ? everything : held);
        sums[i] += share;
        EXPECT_NEAR(meter.counters().by_layer[i], sums[i], 1e-5 * static_cast<double>(rounds))
            << "layer " << l << " round " << rounds;
        // The query of another layer is not the same.
        const double other =
            expected(seen, l, (l + 1) % kLayers, position, l < dense ? everything : held);
        wrong = std::max(wrong, std::abs(other - share));
        EXPECT_TRUE(l >= dense || share == 1);
        EXPECT_TRUE(l < dense || share < 0.999);
      }
      const std::int64_t length = position + 1 + kept;
      full.truncate(length);
      full.commit(length);
      small.truncate(std::min(length, small.length()));
      small.commit(small.length());
    }
    EXPECT_GT(wrong, 1e-3);  // a hundred times the tolerance
    EXPECT_EQ(meter.counters().by_age.empty(), !selects);
    std::int64_t of_ages = 0;
    for (const auto& g : meter.counters().by_age) of_ages += g.rows;
    EXPECT_EQ(of_ages, selects ? rounds : 0);
  }

  // A prompt in the full cache, without its last token.
  void feed_prompt(LayerObserver* last) {
    t.run(std::span(tokens).first(kPrompt - 20), full, 32);
    t.model.forward(std::span(tokens).subspan(kPrompt - 20, 20), full, Logits::kNone, last);
    full.truncate(kPrompt - 1);
    full.commit(kPrompt - 1);
  }

  Held everything = [](int, int) {
    std::set<std::int64_t> all;
    for (std::int64_t i = 0; i < 256; ++i) all.insert(i);
    return all;
  };
  int heads_kv;
  Tiny t;
  FullCache full;
  std::vector<Token> tokens;
};

TEST(RecoveryMeter, OfARetrievalCacheByTheRowsInIt) {
  const RetrievalCache::Options options[] = {
      {kBudget, 4, Selection::kMeanKey, {}, 0},
      {kBudget, 1, Selection::kAttention, {}, 0},
      {kBudget, 4, Selection::kMeanKey, {RebuildPolicy::Kind::kEvery, 3, 0}, 1},
      {kBudget, 1, Selection::kAttention, {RebuildPolicy::Kind::kToken, 0, 0}, 0},
      {kBudget, 4, Selection::kMeanKey, {RebuildPolicy::Kind::kToken, 0, 0}, 1},
      {kBudget, 2, Selection::kH2O, {}, 0},
  };
  for (const int kv_heads : {1, 2, 4}) {
    for (const RetrievalCache::Options& o : options) {
      SCOPED_TRACE(fmt::format("{} KV heads, chunks of {}, {} dense layers, selection {}", kv_heads,
                               o.chunk_size, o.dense_layers, static_cast<int>(o.selection)));
      Scene s(kv_heads, 3);
      RetrievalCache small(*s.t.backend, s.full, kLayers, kHeads, kv_heads, kDim, 16, DType::kF32,
                           o);
      LastQueries queries(*s.t.backend, kLayers, kHeads, kDim);
      s.feed_prompt(&queries);
      small.select_prompt(queries.view(), s.t.model.rope());
      s.compare(small, &small, o.dense_layers, true, [&](std::int64_t position) {
        // Whose keys, which are rotated by their place, lie in its rows; what is not committed it
        // has been fed itself.
        std::vector<std::vector<std::set<std::int64_t>>> held(kLayers);
        const std::int64_t committed = small.committed();
        for (int l = o.dense_layers; l < kLayers; ++l) {
          const KvView in = small.range(l, 0, 0), all = s.full.range(l, 0, 0);
          auto& of_layer = held[static_cast<std::size_t>(l)];
          of_layer.resize(static_cast<std::size_t>(kv_heads));
          for (int h = 0; h < kv_heads; ++h) {
            auto& there = of_layer[static_cast<std::size_t>(h)];
            for (std::int64_t row = 0; row < kBudget; ++row) {
              const std::vector<float> key = row_of(in.k, in, h, row);
              for (std::int64_t i = 0; i < committed; ++i) {
                if (row_of(all.k, all, h, i) == key) there.insert(i);
              }
            }
            EXPECT_EQ(std::ssize(there), kBudget);
            for (std::int64_t i = committed; i <= position; ++i) there.insert(i);
          }
        }
        return [held](int l, int h) {
          return held[static_cast<std::size_t>(l)][static_cast<std::size_t>(h)];
        };
      });
    }
  }
}

TEST(RecoveryMeter, OfAStreamingCacheBySinksAndWindow) {
  for (const int kv_heads : {1, 2, 4}) {
    for (const int dense : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} KV heads, {} dense layers", kv_heads, dense));
      Scene s(kv_heads, 4);
      StreamingCache small(*s.t.backend, kLayers, kv_heads, kDim, kBudget, 32, DType::kF32,
                           {&s.full, dense});
      s.feed_prompt(nullptr);
      std::int64_t evicted = 0;  // whole granules of 8 tokens
      const auto evict = [&] {
        const std::int64_t surplus = small.committed() - evicted - kBudget;
        if (surplus > 0) evicted += round_up(surplus, 8);
      };
      for (std::int64_t at = 0; at < kPrompt - 1; at += 20) {
        s.t.run(std::span(s.tokens).subspan(static_cast<std::size_t>(at), 20), small, 20);
        small.commit(small.length());
        evict();
      }
      s.compare(small, nullptr, dense, false, [&](std::int64_t position) {
        evict();
        std::set<std::int64_t> held;
        for (std::int64_t i = 0; i <= position; ++i) {
          if (i < 16 || i >= 16 + evicted) held.insert(i);
        }
        return [held](int, int) { return held; };
      });
    }
  }
}

// Where nothing is left out every share is 1, to the bit.
TEST(RecoveryMeter, RoomForAllTokensRecoversAll) {
  for (const bool streams : {false, true}) {
    Scene s(2, 5);
    LastQueries queries(*s.t.backend, kLayers, kHeads, kDim);
    s.feed_prompt(&queries);
    RetrievalCache retrieval(*s.t.backend, s.full, kLayers, kHeads, 2, kDim, 16, DType::kF32,
                             {128, 4, Selection::kMeanKey, {}, 0});
    StreamingCache streaming(*s.t.backend, kLayers, 2, kDim, 128, 128, DType::kF32);
    retrieval.select_prompt(queries.view(), s.t.model.rope());
    s.t.run(std::span(s.tokens).first(kPrompt - 1), streaming, 50);
    streaming.commit(streaming.length());
    StoredCache& small = streams ? static_cast<StoredCache&>(streaming) : retrieval;
    RecoveryMeter meter(*s.t.backend, s.full, small, kLayers, kHeads, 2, kDim);
    s.t.run(std::span(s.tokens).subspan(kPrompt - 1, 3), small, 3, &meter.drafts());
    s.t.run(std::span(s.tokens).subspan(kPrompt - 1, 4), s.full, 4, &meter.verifications());
    EXPECT_EQ(meter.counters().by_layer, std::vector<double>(kLayers, 1.0));
    EXPECT_EQ(meter.counters().rows, 1);
    meter.restart();
    EXPECT_EQ(meter.counters().rows, 0);
  }
}

// A verification of a token that was not drafted from is a mistake of ours.
TEST(RecoveryMeter, WantsTheDraftFirst) {
  Scene s(2, 6);
  StreamingCache small(*s.t.backend, kLayers, 2, kDim, kBudget, 32, DType::kF32);
  s.feed_prompt(nullptr);
  RecoveryMeter meter(*s.t.backend, s.full, small, kLayers, kHeads, 2, kDim);
  EXPECT_THROW(s.t.run({&s.tokens[kPrompt - 1], 1}, s.full, 1, &meter.verifications()), Error);
}

TEST(HeldTokens, Shares) {
  HeldTokens h = HeldTokens::all(9);
  std::vector<float> values(10);
  std::iota(values.begin(), values.end(), 1.0F);  // 55 in all
  EXPECT_EQ(h.share_of(0, 0, values), 1);
  h.first = 2;
  h.last_from = 7;
  EXPECT_EQ(h.share_of(0, 0, values), (1 + 2 + 8 + 9 + 10) / 55.0);
  h.chunk = 2;
  h.kv_heads = 2;
  h.chunks_per_head = 2;
  h.chunks = {1, 2, 2, 1};
  h.selected_rows = 3;  // a whole chunk, and the first token of the second
  EXPECT_EQ(h.share_of(0, 0, values), (1 + 2 + 8 + 9 + 10 + 3 + 4 + 5) / 55.0);
  EXPECT_EQ(h.share_of(0, 1, values), (1 + 2 + 8 + 9 + 10 + 5 + 6 + 3) / 55.0);
  h.dense_layers = 1;
  EXPECT_EQ(h.share_of(0, 0, values), 1);
  EXPECT_EQ(h.share_of(1, 1, values), (1 + 2 + 8 + 9 + 10 + 5 + 6 + 3) / 55.0);
  EXPECT_THROW(h.share_of(1, 1, std::span<const float>(values).first(9)), Error);
}

}  // namespace
}  // namespace triforce
