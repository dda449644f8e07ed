// Which options and shapes a plan refuses, and that what it accepts can be built.
#include <gtest/gtest.h>

#include "cpu/cpu_backend.h"
#include "decode/toy_models.h"
#include "triforce/decode.h"
#include "triforce/plan.h"

namespace triforce {
namespace {

TEST(Options, ThatDoNotFitAreUsageErrors) {
  const std::unique_ptr<Backend> backend = make_cpu_backend({1, std::nullopt});
  const ToyPair pair(*backend, DType::kF32, 61);
  const auto refused = [&](const auto& change) {
    PlanInput in;
    in.target = pair.target.config;
    in.draft = pair.draft.config;
    in.backend = backend.get();
    in.options = toy_options();
    in.run = {100, 20, all_methods()};
    change(in.options, in.run);
    try {
      plan_memory(in);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage) << e.what();
      return true;
    }
    const ToyRun run(*backend, pair, in.options, in.run);  // what the plan accepts can be built
    return false;
  };
  EXPECT_FALSE(refused([](auto&, auto&) {}));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.gamma = 0; }));
  EXPECT_FALSE(refused([](auto& o, auto&) { o.gamma = kMaxGamma; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.gamma = kMaxGamma + 1; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.inner_gamma = kMaxGamma + 1; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.budget = 68; }));
  EXPECT_FALSE(refused([](auto& o, auto&) { o.budget = 8; }));
  EXPECT_FALSE(refused([](auto& o, auto&) { o.draft_budget = 1; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.draft_budget = 0; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.draft_budget = kMaxTokens + 1; }));
  EXPECT_FALSE(refused([](auto& o, auto&) {
    o.draft_cache = DraftCache::kRetrieval;
    o.draft_budget = 16;  // two chunks
  }));
  EXPECT_TRUE(refused([](auto& o, auto&) {
    o.draft_cache = DraftCache::kRetrieval;
    o.draft_budget = 15;
  }));
  EXPECT_FALSE(refused([](auto& o, auto& s) {  // without a drafter
    o.draft_cache = DraftCache::kRetrieval;
    o.draft_budget = 15;
    s.methods = {Method::kRetrieval};
  }));
  EXPECT_TRUE(refused([](auto& o, auto& s) {
    o.draft_cache = DraftCache::kRetrieval;
    o.chunk_size = 0;
    s.methods = {Method::kDraft};
  }));
  EXPECT_TRUE(refused([](auto&, auto& s) { s.max_prompt = 1; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.rebuild.kind = RebuildPolicy::Kind::kToken; }));
  for (const bool offloaded : {false, true}) {
    EXPECT_EQ(refused([&](auto& o, auto& s) {
                o.selection = Selection::kH2O;
                if (offloaded) s.homes = spread_homes(2, 2, 2);
              }),
              offloaded);
    EXPECT_EQ(refused([&](auto& o, auto& s) {
                o.rebuild.kind = RebuildPolicy::Kind::kToken;
                o.selection = Selection::kQuest;
                s.methods = {Method::kRetrieval, Method::kStreamingHierarchy};
                if (offloaded) s.homes = spread_homes(2, 2, 2);
              }),
              offloaded);
    for (const int chunk_size : {1, 2}) {  // by keys, and by landmarks
      EXPECT_EQ(refused([&](auto& o, auto& s) {
                  o.rebuild.kind = RebuildPolicy::Kind::kToken;
                  o.chunk_size = chunk_size;
                  s.methods = {Method::kRetrieval};
                  if (offloaded) s.homes = spread_homes(2, 2, 2);
                }),
                offloaded && chunk_size == 1)
          << chunk_size;
    }
  }
  EXPECT_TRUE(refused([](auto& o, auto& s) {
    o.rebuild.kind = RebuildPolicy::Kind::kToken;
    o.selection = Selection::kH2O;
    s.methods = {Method::kRetrieval};
  }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.selection = Selection::kH2O, o.chunk_size = 64; }));
  EXPECT_FALSE(refused([](auto& o, auto&) { o.key_rank = 32; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.key_rank = 24; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.key_rank = 16, o.selection = Selection::kSnapKv; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.key_rank = 4096; }));  // more than its dimensions
  EXPECT_FALSE(refused([](auto& o, auto&) { o.dense_layers = 1; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.dense_layers = 2; }));  // all of them
  EXPECT_TRUE(refused([](auto& o, auto&) { o.dense_layers = -1; }));
  // Near heads of its layers alone.
  EXPECT_TRUE(refused([](auto& o, auto& s) {
    o.dense_layers = 1;
    s.homes = spread_homes(2, 2, 2);
  }));
  EXPECT_FALSE(refused([](auto& o, auto& s) {
    o.dense_layers = 1;
    s.homes = {{2, 1}, 4};
  }));
  // max_position is 4096; the last token is not fed, and before it a round may have fed 6 + 1
  // proposals, those of a drafter alone 6, the baseline none.
  EXPECT_FALSE(refused([](auto&, auto& s) { s.max_prompt = 4096 - 20 + 1 - 7; }));
  EXPECT_TRUE(refused([](auto&, auto& s) { s.max_prompt = 4096 - 20 + 1 - 6; }));
  EXPECT_FALSE(refused([](auto&, auto& s) { s = {4096 - 20 + 1 - 6, 20, {Method::kDraft}}; }));
  EXPECT_TRUE(refused([](auto&, auto& s) { s = {4096 - 20 + 1 - 5, 20, {Method::kDraft}}; }));
  EXPECT_FALSE(refused([](auto&, auto& s) { s = {4096 - 20 + 1, 20, {kBaselineMethod}}; }));
  EXPECT_TRUE(refused([](auto&, auto& s) { s = {4096 - 20 + 2, 20, {kBaselineMethod}}; }));
  // The drafter's positions are no limit: what is beyond them is noted.
  EXPECT_FALSE(refused([](auto& o, auto&) { o.draft_budget = 5000; }));
}

}  // namespace
}  // namespace triforce
