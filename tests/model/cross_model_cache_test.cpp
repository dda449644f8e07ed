// Which rows a drafter's cache holds when another model's attention chooses them.
#include "model/cross_model_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "model/observers.h"
#include "model/tiny_model.h"

namespace triforce {
namespace {

using testing::host_copy;
using testing::random_tokens;
using testing::row_bytes;
using testing::Tiny;
using testing::tiny_config;

constexpr int kDim = 8, kChunk = 4;
constexpr std::int64_t kBudget = 48, kChosenRows = 24, kAppend = 16, kCapacity = 256;

// Keeps the mass of the last layer that the observer was shown.
class Recorder final : public ForwardingObserver {
 public:
  Recorder(Backend& b, LayerObserver& to) : ForwardingObserver(to), b_(b) {}
  bool begin_pass(std::int64_t n, RowPath path) override {
    of_head.clear();
    return ForwardingObserver::begin_pass(n, path);
  }
  void on_range(int layer, TensorView q, const KvView& kv, TensorView mass) override {
    EXPECT_EQ(mass.data != nullptr, layer == 1);
    for (int h = 0; mass.data != nullptr && h < kv.kv_heads; ++h) {
      of_head[kv.first_head + h] = host_copy(b_, mass.rows(h, 1));
    }
    ForwardingObserver::on_range(layer, q, kv, mass);
  }
  std::map<int, std::vector<float>> of_head;

 private:
  Backend& b_;
};

// A target, and a drafter on the same backend whose cache the target's attention fills.
struct Scene {
  explicit Scene(const KvHomes& homes = {})
      : target(tiny_config(8, 4)),
        full(*target.backend, 2, 4, kDim, kCapacity, 64, DType::kF32, homes),
        weights(random_weights(*target.backend, tiny_config(), DType::kF32, 11,
                               MemTag::kDraftWeights, {})),
        drafter(*target.backend, weights, kBudget + kAppend, kAppend, kAppend),
        cache(*target.backend, 2, 2, kDim, kBudget, kAppend, DType::kF32, kChunk,
              {2, 8, 4, kDim, full.capacity()}),
        recorder(*target.backend, cache) {}
  // The drafter's next n tokens become final, and `more` behind them do not yet.
  void draft(std::int64_t n, std::int64_t more = 0) {
    const std::int64_t end = cache.committed() + n;
    while (cache.length() < end) {
      make(std::min<std::int64_t>(kAppend, end - cache.length()));
      if (cache.length() < end) cache.commit(cache.length());
    }
    if (more > 0) make(more);
    cache.commit(end);
  }
  // A pass of the target over its next n tokens, which are then final.
  void verify(std::int64_t n) {
    feed(target.model, full, n, &recorder);
    full.commit(full.length());
  }
  void prompt(std::int64_t n) {
    while (full.length() < n) {
      feed(target.model, full, std::min<std::int64_t>(32, n - full.length()), nullptr);
      full.commit(full.length());
    }
    draft(n);
    full.mark();
    cache.mark();
  }
  // Tokens whose rows lie where a pass of the drafter reads them.
  void expect_tokens(const std::vector<std::int64_t>& held) {
    for (std::size_t r = 0; r < held.size(); ++r) {
      EXPECT_EQ(row_of(static_cast<std::int64_t>(r)), made.at(held[r]))
          << "row " << r << " is not token " << held[r];
    }
  }
  // Chunk 0 and those of the largest sums before `first_recent`, in the order of the text.
  std::vector<std::int64_t> best_chunks(std::int64_t first_recent) const {
    std::vector<double> sums(static_cast<std::size_t>(first_recent / kChunk));
    for (const auto& [head, mass] : recorder.of_head) {
      for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += static_cast<double>(mass[c]);
    }
    std::vector<std::int64_t> ids(sums.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::sort(ids.begin() + 1, ids.end(), [&](std::int64_t a, std::int64_t b) {
      return sums[static_cast<std::size_t>(a)] > sums[static_cast<std::size_t>(b)];
    });
    ids.resize(kChosenRows / kChunk);
    std::ranges::sort(ids);
    return ids;
  }
  // Those chunks' tokens, and [first_recent, length).
  std::vector<std::int64_t> expected(const std::vector<std::int64_t>& chunks,
                                     std::int64_t first_recent) const {
    std::vector<std::int64_t> held;
    for (const std::int64_t c : chunks) {
      for (int i = 0; i < kChunk; ++i) held.push_back(c * kChunk + i);
    }
    for (std::int64_t t = first_recent; t < cache.length(); ++t) held.push_back(t);
    return held;
  }
  std::vector<std::int64_t> first_chunks() const {
    std::vector<std::int64_t> ids(kChosenRows / kChunk);
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
  }

  Tiny target;
  FullCache full;
  ModelWeights weights;
  LlamaModel drafter;
  CrossModelCache cache;
  Recorder recorder;
  std::vector<Token> tokens = random_tokens(240, 61, 3);
  std::map<std::int64_t, std::string> made;  // of each token: its rows as the drafter made them

 private:
  // Keys and values of all layers and heads.
  std::string row_of(std::int64_t row) {
    std::string all;
    for (int l = 0; l < 2; ++l) {
      const KvView kv = cache.range(l, 0, 0);
      for (int h = 0; h < 2; ++h) all += row_bytes(kv.k, kv, h, row) + row_bytes(kv.v, kv, h, row);
    }
    return all;
  }
  // A pass of the drafter over its next n tokens.
  void make(std::int64_t n) {
    const HeldTokens held = cache.held(cache.committed());
    const std::int64_t before =
        kChosenRows + cache.length() - std::max(held.last_from, kChosenRows);
    feed(drafter, cache, n, nullptr);
    for (std::int64_t i = 0; i < n; ++i) made[cache.length() - n + i] = row_of(before + i);
  }
  void feed(LlamaModel& model, KvCache& to, std::int64_t n, LayerObserver* observer) {
    model.forward(std::span(tokens).subspan(static_cast<std::size_t>(to.length()),
                                            static_cast<std::size_t>(n)),
                  to, Logits::kNone, observer, throughput_path(n));
  }
};

// Rows behind the chosen ones hold [first_recent, committed) after evictions of whole granules.
std::int64_t first_recent_of(std::int64_t committed) {
  std::int64_t first = kChosenRows;
  while (committed - first > kBudget - kChosenRows) first += 8;
  return first;
}

TEST(CrossModelCache, HoldsTheChunksOfTheLastVerification) {
  Scene s;
  s.prompt(150);
  // Nothing was observed yet: the first chunks.
  s.expect_tokens(s.expected(s.first_chunks(), first_recent_of(150)));
  std::set<std::vector<std::int64_t>> all;
  for (const std::int64_t kept : {1, 5, 8, 3, 12}) {
    s.verify(kept);
    ASSERT_EQ(s.recorder.of_head.size(), 4U);
    s.draft(kept, 2);
    const std::int64_t first = first_recent_of(s.cache.committed());
    const std::vector<std::int64_t> best = s.best_chunks(first);
    EXPECT_NE(best, s.first_chunks());  // of a text without any structure
    EXPECT_EQ(best.front(), 0);
    all.insert(best);
    s.expect_tokens(s.expected(best, first));
    const HeldTokens held = s.cache.held(s.cache.length());
    EXPECT_EQ(held.first, 0);
    EXPECT_EQ(held.last_from, first);
    EXPECT_EQ(held.chunk, kChunk);
    EXPECT_EQ(held.selected_rows, kChosenRows);
    ASSERT_EQ(held.chunks.size(), 4 * best.size());  // of two layers with two heads
    for (std::size_t i = 0; i < held.chunks.size(); ++i) {
      EXPECT_EQ(held.chunks[i], best[i % best.size()]);
    }
    s.cache.truncate(s.cache.committed());
  }
  EXPECT_GT(all.size(), 1U);  // they change
}

// Those that were chosen stay where no pass was observed since, and while others are evicted.
TEST(CrossModelCache, KeepsItsChoiceUntilTheNextOne) {
  Scene s;
  s.prompt(150);
  s.verify(2);
  s.draft(2);
  const std::vector<std::int64_t> best = s.best_chunks(first_recent_of(152));
  s.draft(30);
  s.expect_tokens(s.expected(best, first_recent_of(182)));
}

// The drafter's cache and a retrieval cache that see one pass choose as each would alone.
TEST(CrossModelCache, SharesAPassWithARetrievalCache) {
  std::vector<std::vector<std::int32_t>> selected, chosen;
  for (const int order : {0, 1, 2}) {
    Scene s;
    RetrievalCache retrieval(*s.target.backend, s.full, 2, 8, 4, kDim, 16, DType::kF32,
                             {40, kChunk, Selection::kAttention, {}});
    LastQueries queries(*s.target.backend, 2, 8, kDim);
    s.prompt(149);
    const auto pass = [&](std::int64_t n, LayerObserver* observer) {
      s.target.model.forward(std::span(s.tokens).subspan(static_cast<std::size_t>(s.full.length()),
                                                         static_cast<std::size_t>(n)),
                             s.full, Logits::kNone, observer);
    };
    pass(1, &queries);
    s.full.commit(150);
    retrieval.select_prompt(queries.view(), s.target.model.rope());
    s.draft(1);
    if (order == 0) {  // each of the same pass alone
      pass(6, &retrieval);
      s.full.truncate(150);
      pass(6, &s.cache);
    } else {
      LayerObserver* const of[] = {&s.cache, &retrieval};
      BothObservers both(*of[order - 1], *of[2 - order]);
      pass(6, &both);
    }
    s.full.commit(156);
    s.draft(6);
    selected.push_back(retrieval.selected_chunks());
    chosen.push_back(s.cache.held(156).chunks);
  }
  const auto half = static_cast<std::ptrdiff_t>(selected[0].size() / 2);  // of a layer
  EXPECT_FALSE(
      std::equal(selected[0].begin(), selected[0].begin() + half, selected[0].begin() + half));
  EXPECT_FALSE(chosen[0].empty());
  for (const int order : {1, 2}) {
    EXPECT_EQ(selected[static_cast<std::size_t>(order)], selected[0]) << order;
    EXPECT_EQ(chosen[static_cast<std::size_t>(order)], chosen[0]) << order;
  }
}

// A pass whose mass is not that of all its rows, as those of prompts are, changes nothing.
TEST(CrossModelCache, LongPassesAreNotObserved) {
  Scene s;
  s.prompt(150);
  EXPECT_FALSE(s.cache.begin_pass(64, RowPath::kThroughput));
  EXPECT_EQ(s.cache.mass(1).data, nullptr);
  EXPECT_TRUE(s.cache.begin_pass(4, RowPath::kInvariant));
  EXPECT_EQ(s.cache.mass(0).data, nullptr);
  EXPECT_NE(s.cache.mass(1).data, nullptr);
}

// While the cache holds the whole text there is nothing to choose.
TEST(CrossModelCache, AShortTextIsNotObserved) {
  Scene s;
  s.prompt(40);
  EXPECT_FALSE(s.cache.begin_pass(4, RowPath::kInvariant));
  s.draft(8);
  EXPECT_FALSE(s.cache.begin_pass(4, RowPath::kInvariant));
  s.draft(1);
  EXPECT_TRUE(s.cache.begin_pass(4, RowPath::kInvariant));
}

// A head in each of several places, as far heads have, adds to the same sums.
TEST(CrossModelCache, RangesOfHeadsAddUp) {
  Scene whole, spread({{1, 2}, 2});
  for (Scene* const s : {&whole, &spread}) {
    s->prompt(150);
    s->verify(6);
    ASSERT_EQ(s->recorder.of_head.size(), 4U);
    s->draft(6);
  }
  EXPECT_EQ(spread.cache.held(156).chunks, whole.cache.held(156).chunks);
  spread.expect_tokens(
      spread.expected(spread.best_chunks(first_recent_of(156)), first_recent_of(156)));
}

// After rewind() a generation drafts as one that saw nothing before, and so after reset().
TEST(CrossModelCache, ReturnsToThePrompt) {
  Scene s, fresh;
  fresh.prompt(150);
  const auto generated = [](Scene& scene) {
    std::vector<std::int32_t> chunks;
    for (const std::int64_t n : {4, 9, 2}) {
      scene.verify(n);
      scene.draft(n);
      const auto of_round = scene.cache.held(scene.cache.length()).chunks;
      chunks.insert(chunks.end(), of_round.begin(), of_round.end());
    }
    const std::vector<float> logits = host_copy(
        *scene.target.backend,
        scene.drafter.forward(std::span(scene.tokens).last(3), scene.cache, Logits::kAll));
    return std::pair(chunks, logits);
  };
  const auto expected = generated(fresh);
  s.prompt(150);
  for (const bool with_reset : {false, true, false}) {
    EXPECT_EQ(generated(s), expected);
    s.verify(3);  // chosen by nobody
    if (with_reset) {
      s.full.reset();
      s.cache.reset();
      s.prompt(150);
    } else {
      s.full.rewind();
      s.cache.rewind();
    }
    EXPECT_TRUE(s.cache.held(150).chunks.empty());
    s.expect_tokens(s.expected(s.first_chunks(), first_recent_of(150)));
    s.draft(1);  // nothing was verified since
    EXPECT_TRUE(s.cache.held(151).chunks.empty());
    s.cache.rewind();
  }
}

// A verification in two passes chooses by both.
TEST(CrossModelCache, PassesOfOneVerificationAddUp) {
  Scene s;
  s.prompt(150);
  std::map<int, std::vector<float>> sums;
  for (const std::int64_t rows : {6, 1}) {
    s.verify(rows);
    for (const auto& [head, mass] : s.recorder.of_head) {
      std::vector<float>& sum = sums.try_emplace(head, mass.size()).first->second;
      for (std::size_t c = 0; c < mass.size(); ++c) sum[c] += mass[c];
    }
  }
  const std::vector<std::int64_t> last = s.best_chunks(first_recent_of(157));
  s.recorder.of_head = sums;
  const std::vector<std::int64_t> both = s.best_chunks(first_recent_of(157));
  EXPECT_NE(both, last);
  s.draft(7);
  s.expect_tokens(s.expected(both, first_recent_of(157)));
}

}  // namespace
}  // namespace triforce
