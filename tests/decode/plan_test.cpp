// Which KV heads the host computes with, by rates and by homes.
#include "triforce/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace triforce {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(HostSplit, NoOtherSplitTakesLess) {
  for (const double bus : {0.5, 12.0, 25.0, 50.0, 400.0}) {
    for (const double host : {0.5, 20.0, 25.0, 72.0, 400.0}) {
      for (const int far : {1, 2, 5, 8, 27, 32, 96}) {
        const int chosen = choose_host_split(far, {bus, host});
        ASSERT_GE(chosen, 0);
        ASSERT_LE(chosen, far);
        const auto longer = [&](int h) { return std::max((far - h) / bus, h / host); };
        for (int h = 0; h <= far; ++h) EXPECT_LE(longer(chosen), longer(h)) << far << " " << h;
        // Both sides end within the time of one head.
        EXPECT_LE(std::abs((far - chosen) / bus - chosen / host), 1 / bus + 1 / host);
      }
    }
  }
}

TEST(HostSplit, AtTheEdges) {
  EXPECT_EQ(choose_host_split(0, {25, 72}), 0);
  EXPECT_EQ(choose_host_split(32, {kInfinite, 72}), 0);
  EXPECT_EQ(choose_host_split(32, {25, kInfinite}), 32);
  EXPECT_EQ(choose_host_split(32, {25, 1e-6}), 0);  // a slow host gets none
  EXPECT_EQ(choose_host_split(32, {1e-6, 72}), 32);
  EXPECT_EQ(choose_host_split(1, {25, 24}), 0);  // one head goes to the faster side
  EXPECT_EQ(choose_host_split(1, {25, 26}), 1);
  EXPECT_EQ(choose_host_split(1, {25, 25}), 0);  // of equal ones the least
  EXPECT_EQ(choose_host_split(8, {25, 72}), 6);  // GQA: 2 / 25 s against 6 / 72 s
  EXPECT_EQ(choose_host_split(32, {25, 72}), 24);
}

TEST(HostSplit, AnotherSplitOfTheSameHomes) {
  for (const std::int64_t near : {0, 7, 20, 24}) {
    const KvHomes none = spread_homes(3, 8, near);
    EXPECT_TRUE(none.host_heads.empty());
    for (int split = 0; split <= 8; ++split) {
      const KvHomes homes = with_host_split(none, 8, split), want = spread_homes(3, 8, near, split);
      EXPECT_EQ(homes.near_heads, want.near_heads);
      EXPECT_EQ(homes.host_heads, want.host_heads);
      EXPECT_EQ(homes.slots, want.slots);
      EXPECT_EQ(with_host_split(homes, 8, 0).host_heads, none.host_heads);
    }
  }
  EXPECT_EQ(with_host_split(spread_homes(3, 8, 7), 8, 6).host_heads, (std::vector<int>{6, 6, 5}));
  EXPECT_EQ(max_far_heads(spread_homes(3, 8, 7), 8), 6);  // near: 2, 2, 3
  EXPECT_EQ(max_far_heads(spread_homes(3, 8, 0), 8), 8);
  EXPECT_EQ(max_far_heads({}, 8), 0);
}

// Of a target of 32 equal layers: what is read of the full cache, and what is stored beside it.
TEST(DenseLayers, PassesReadTheFullCacheOfTheirLayers) {
  constexpr std::int64_t kTokens = 10'000, kBudget = 1024;
  PlanInput in;
  in.target = *find_preset("llama-7B-128K");
  in.options.budget = kBudget;
  in.run = {kTokens, 16, {Method::kRetrieval, Method::kStreaming}};
  const MemoryPlan sparse = plan_memory(in);
  in.options.dense_layers = 2;
  const MemoryPlan dense = plan_memory(in);
  const std::int64_t row = 2 * 4096 * 2;  // K and V of a token in a layer
  for (const Pass pass : {Pass::kRetrieval, Pass::kStreaming}) {
    EXPECT_EQ(sparse.passes[pass].at(kTokens) - sparse.passes[pass].weights, 32 * kBudget * row);
    EXPECT_EQ(dense.passes[pass].at(kTokens) - dense.passes[pass].weights,
              (30 * kBudget + 2 * kTokens) * row);
  }
  EXPECT_EQ(dense.passes[Pass::kFull].at(kTokens), sparse.passes[Pass::kFull].at(kTokens));
  const auto of = [](const MemoryPlan& plan, MemTag tag) {
    return plan.bytes[static_cast<std::size_t>(tag)];
  };
  EXPECT_EQ(of(dense, MemTag::kKvFull), of(sparse, MemTag::kKvFull));
  for (const MemTag tag : {MemTag::kKvRetrieval, MemTag::kKvStreaming}) {
    EXPECT_EQ(32 * of(dense, tag), 30 * of(sparse, tag));
  }
}

// Of a target of 32 equal layers: selections for each token read a key of each chunk, half of a row
// in 8, or all keys, or all rows. Then rows are gathered: read and written.
TEST(SelectionsForEachToken, ReadLandmarksOrAllKeysOrAllRows) {
  constexpr std::int64_t kTokens = 10'000, kBudget = 1024, kRow = 2 * 4096 * 2;
  PlanInput in;
  in.target = *find_preset("llama-7B-128K");
  in.options.budget = kBudget;
  in.run = {kTokens, 16, {Method::kRetrieval}};
  const MemoryPlan once = plan_memory(in);
  in.options.rebuild.kind = RebuildPolicy::Kind::kToken;
  struct Case {
    Selection selection;
    int chunk_size;
    std::int64_t row;
  };
  for (const Case& c : {Case{Selection::kMeanKey, 8, kRow / 16},
                        {Selection::kMeanKey, 1, kRow / 2},  // a key is the mean of its own chunk
                        {Selection::kQuest, 8, kRow / 2},
                        {Selection::kAttention, 8, kRow}}) {
    in.options.selection = c.selection;
    in.options.chunk_size = c.chunk_size;
    const MemoryPlan each = plan_memory(in);
    EXPECT_EQ(each.passes[Pass::kRetrieval].at(kTokens) - once.passes[Pass::kRetrieval].at(kTokens),
              32 * (kTokens * c.row + kBudget * 2 * kRow))
        << to_string(c.selection) << c.chunk_size;
    const auto tag = static_cast<std::size_t>(MemTag::kKvRetrieval);
    EXPECT_EQ(each.bytes[tag] > once.bytes[tag], c.row < kRow / 2);
  }
  in.options.selection = Selection::kMeanKey;
  in.options.chunk_size = 8;
  in.options.key_rank = 160;
  const MemoryPlan rebuilt = plan_memory(in);
  EXPECT_EQ(
      rebuilt.passes[Pass::kRetrieval].at(kTokens) - once.passes[Pass::kRetrieval].at(kTokens),
      32 * (kTokens * kRow / 16 + kBudget * (kRow / 2 + 32 * 160 * 2 + kRow)));
  EXPECT_EQ(rebuilt.passes[Pass::kRetrieval].far_at(kTokens), 0);

  // Of far heads, keys and values that are gathered come over the bus.
  in.run.homes = spread_homes(32, 32, 20 * 32, 2);
  for (const int rank : {0, 160}) {
    in.options.key_rank = rank;
    EXPECT_EQ(plan_memory(in).passes[Pass::kRetrieval].far_at(kTokens),
              12 * kBudget * (rank > 0 ? kRow / 2 : kRow));
  }
}

// Llama-3.2-1B with tied embeddings and with a head of its own: a pass multiplies by every matrix
// once and reads one row of the table a token, so both read the same.
TEST(TiedEmbeddings, APassReadsTheOutputMatrixAndNotTheTable) {
  PlanInput in;
  in.target.layers = 16;
  in.target.hidden = 2048;
  in.target.intermediate = 8192;
  in.target.heads = 32;
  in.target.kv_heads = 8;
  in.target.head_dim = 64;
  in.target.vocab = 128'256;
  in.target.max_position = 131'072;
  in.draft = in.target;
  in.run = {4000, 16, {Method::kDraft, Method::kRetrieval}};
  in.options.budget = 1024;
  in.options.draft_budget = 256;
  // Queries and outputs 2048 x 2048, keys and values 512 x 2048, three of 8192 x 2048.
  constexpr std::int64_t kLayer = 2 * 2048 * 2048 + 2 * 512 * 2048 + 3 * 8192 * 2048;
  constexpr std::int64_t kHead = 128'256 * 2048, kNorms = 33 * 2048;
  constexpr std::int64_t kRow = 2 * 16 * 8 * 64 * 2;  // K and V of a token in all layers
  for (const bool tied : {true, false}) {
    SCOPED_TRACE(tied ? "tied" : "a head of its own");
    in.target.tied_embeddings = in.draft->tied_embeddings = tied;
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(ranks);
      in.shard = {0, ranks};
      const PerPass<PassWork> passes = plan_memory(in).passes;
      // Ranks share the layers; each has the whole head and the norms.
      const std::int64_t weights = (16 * kLayer / ranks + kHead) * 2 + kNorms * 4;
      EXPECT_EQ(passes[Pass::kFull].at(4000), weights + 4000 * kRow / ranks);
      EXPECT_EQ(passes[Pass::kRetrieval].at(4000), weights + 1024 * kRow / ranks);
      // The drafter is whole on each.
      EXPECT_EQ(passes[Pass::kDraft].at(4000), (16 * kLayer + kHead) * 2 + kNorms * 4 + 256 * kRow);
    }
  }
}

// Copies for drafts: the target's passes over small caches read 4 or 8 bits of each weight, of the
// head's 8, and two bytes of each 64. The others read what they did before; memory holds both.
TEST(DraftWeights, DraftingPassesOfTheTargetReadTheCopies) {
  PlanInput in;
  in.target = *find_preset("llama-7B-128K");
  in.draft = *find_preset("llama-68M");
  in.options.budget = 1024;
  in.run = {4000, 16, {Method::kTriForce, Method::kStreaming}};
  constexpr std::int64_t kHead = 32000 * 4096;
  constexpr std::int64_t kWeights = 32LL * (4 * 4096 * 4096 + 3 * 4096 * 11008) + kHead;
  constexpr std::int64_t kNorms = 65 * 4096 * 4;
  const MemoryPlan own = plan_memory(in);
  EXPECT_EQ(own.passes[Pass::kRetrieval].weights, 2 * kWeights + kNorms);
  for (const auto by : {Quantisation::kInt8, Quantisation::kInt4}) {
    in.options.draft_weights = by;
    const MemoryPlan plan = plan_memory(in);
    const std::int64_t copies =
        (kWeights - kHead) * (by == Quantisation::kInt4 ? 4 : 8) / 8 + kHead + kWeights / 64 * 2;
    for (const Pass pass : {Pass::kRetrieval, Pass::kStreaming}) {
      EXPECT_EQ(plan.passes[pass].weights, copies + kNorms) << to_string(by);
    }
    for (const Pass pass : {Pass::kFull, Pass::kDraft}) {
      EXPECT_EQ(plan.passes[pass].weights, own.passes[pass].weights) << to_string(by);
    }
    EXPECT_EQ(plan.total_bytes(), own.total_bytes() + copies) << to_string(by);
  }
}

// A window is read anew in parts: each reads the rows before it, and all weights but what only
// logits need, which the last one reads too.
TEST(DraftWindow, PassesReadAllOfItEachTime) {
  PlanInput in;
  in.target = *find_preset("llama-7B-128K");
  in.draft = find_preset("llama-68M");
  in.run = {10'000, 16, {Method::kDraft}};
  const auto draft = [&](std::int64_t budget, DraftCache cache) {
    in.options.draft_budget = budget;
    in.options.draft_cache = cache;
    return plan_memory(in).passes[Pass::kDraft];
  };
  const std::int64_t row = 2 * 2 * 768 * 2;  // K and V of a token in two layers
  const PassWork streams = draft(300, DraftCache::kStreaming);
  EXPECT_EQ(streams.at(10'000), streams.weights + 300 * row);
  const PassWork window = draft(300, DraftCache::kWindow);
  EXPECT_EQ(window.weights, streams.weights);
  // Of 768 x 32000 logits, 768 x 768 outputs and 3 x 768 x 3072 of the feed-forward, and two norms.
  const std::int64_t last = 2 * (768 * 32'000 + 768 * 768 + 3 * 768 * 3072) + 2 * 4 * 768;
  EXPECT_EQ(window.parts(10'000), 3);
  EXPECT_EQ(window.at(10'000), 3 * window.weights - 2 * last + (128 + 256 + 300) * row);
  EXPECT_EQ(window.at(128), window.weights + 128 * row);  // a text that is no longer
  EXPECT_EQ(draft(1, DraftCache::kWindow).at(10'000), window.weights + row);
  // What it allocates is what a streaming cache of that budget takes.
  const std::int64_t bytes = plan_memory(in).total_bytes();
  in.options.draft_cache = DraftCache::kStreaming;
  EXPECT_EQ(plan_memory(in).total_bytes(), bytes);
}

// Rows of every token are kept beside those that passes read.
TEST(DraftRetrieval, KeepsRowsOfTheWholeText) {
  PlanInput in;
  in.target = *find_preset("llama-7B-128K");
  in.draft = find_preset("llama-68M");
  in.run = {10'000, 16, {Method::kDraft}};
  const MemoryPlan streams = plan_memory(in);
  in.options.draft_cache = DraftCache::kRetrieval;
  const MemoryPlan chosen = plan_memory(in);
  const std::int64_t row = 2 * 2 * 768 * 2;  // K and V of a token in two layers
  const auto added = [&](MemTag tag) {
    const auto i = static_cast<std::size_t>(tag);
    return chosen.bytes[i] - streams.bytes[i];
  };
  EXPECT_GE(added(MemTag::kKvStreaming), 10'016 * row);
  EXPECT_LE(added(MemTag::kKvStreaming), 10'400 * row);
  EXPECT_GT(added(MemTag::kWorkspace), 33 * (10'000 / 8) * 4);  // a mass by head, and their sum
  EXPECT_EQ(chosen.total_bytes() - streams.total_bytes(),
            added(MemTag::kKvStreaming) + added(MemTag::kWorkspace));
  EXPECT_EQ(chosen.passes[Pass::kDraft].at(10'000), streams.passes[Pass::kDraft].at(10'000));
}

}  // namespace
}  // namespace triforce
