// What a run allocates, against its plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "core/forwarding_backend.h"
#include "cpu/cpu_backend.h"
#include "decode/teacher_forced.h"
#include "decode/toy_models.h"
#include "triforce/decode.h"
#include "triforce/plan.h"

namespace triforce {
namespace {

constexpr std::int64_t kVocab = 61;

struct EngineMemory : ::testing::Test {
  std::unique_ptr<Backend> backend_ = make_cpu_backend({1, std::nullopt});
};

// A prompt in one pass of more rows than the model takes at once, whose KV rows go to far heads:
// its residual stream lies where the retrieval cache will be, if that is large enough.
TEST_F(EngineMemory, ALongPromptTakesTheMemoryOfTheRetrievalCache) {
  constexpr std::int64_t kPrompt = 700, kCount = 10;
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  const ModelConfig& t = pair.target.config;
  const KvHomes homes = spread_homes(t.layers, t.kv_heads, 1);
  std::array<std::int64_t, 2> activations{};
  for (const bool lent : {false, true}) {
    PlanInput in;
    in.target = t;
    in.draft = pair.draft.config;
    in.dtype = DType::kBF16;
    in.backend = backend_.get();
    in.options = toy_options();
    in.options.budget = lent ? 704 : 64;
    in.options.rebuild = {RebuildPolicy::Kind::kEvery, 4, 0};
    in.run = {kPrompt, kCount, all_methods(), homes};
    activations[lent ? 1 : 0] =
        plan_memory(in).bytes[static_cast<std::size_t>(MemTag::kActivations)];
    ToyRun resident(*backend_, pair, in.options, {kPrompt, kCount, all_methods()});
    ToyRun far(*backend_, pair, in.options, in.run);
    for (std::uint32_t prompt = 0; prompt < 2; ++prompt) {
      int asked = 0;
      EXPECT_FALSE(far.prefill(toy_prompt(kPrompt, kVocab, 7), [&] { return ++asked > 3; }));
      const std::vector<Token> tokens = toy_prompt(kPrompt - 40 * prompt, kVocab, prompt);
      ASSERT_TRUE(resident.prefill(tokens) && far.prefill(tokens));
      const Streams a = run_all(resident, kCount, 3, prompt), b = run_all(far, kCount, 3, prompt);
      for (const auto& [method, metrics] : a.by_method) {
        EXPECT_EQ(metrics.tokens, b.of(method).tokens) << to_string(method);
        EXPECT_EQ(metrics.origins, b.of(method).origins) << to_string(method);
      }
    }
  }
  const std::int64_t rows = backend_->prefill_rows();
  EXPECT_EQ(activations[0] - activations[1], (kPrompt - rows) * t.hidden * 4);
}

// The plan is what a run allocates, tag by tag; what a backend allocates beside is workspace too.
TEST_F(EngineMemory, LedgerEqualsThePlan) {
  const ModelConfig tc = toy_config("t", 2, 4, 2, 32, 131), dc = toy_config("d", 1, 2, 2, 32, 131);
  for (const auto& [selection, lanes] : {std::pair(Selection::kMeanKey, 1),
                                         {Selection::kAttention, 1},
                                         {Selection::kMeanKey, 3},
                                         {Selection::kAttention, 3},
                                         {Selection::kH2O, 2}}) {
    const std::unique_ptr<Backend> backend = make_cpu_backend({1, std::nullopt});
    PlanInput in;
    in.target = tc;
    in.draft = dc;
    in.dtype = DType::kBF16;
    in.backend = backend.get();
    in.options = toy_options();
    in.options.selection = selection;
    in.options.dense_layers = selection == Selection::kMeanKey ? 1 : 0;
    if (lanes == 3) in.options.draft_weights = Quantisation::kInt4;
    if (lanes == 2) in.options.draft_weights = Quantisation::kInt8;
    if (selection != Selection::kH2O) in.options.key_rank = 16;
    if (lanes > 1) in.options.draft_cache = DraftCache::kRetrieval;
    in.run = {300, 40, all_methods(), {}, lanes};
    if (selection == Selection::kAttention) {
      in.run.max_prompt = 700;  // one pass, in the memory of the retrieval cache
      in.options.budget = 1024;
      in.run.homes = spread_homes(tc.layers, tc.kv_heads, 1);
    }
    const MemoryPlan passes = plan_memory(in);
    in.random_target = in.random_draft = true;
    const MemoryPlan plan = plan_memory(in);
    const ToyPair pair(*backend, in.dtype, tc, dc, {}, in.options.draft_weights);
    const ToyRun run(*backend, pair, in.options, in.run);
    for (int i = 0; i < static_cast<int>(MemTag::kCount); ++i) {
      const auto tag = static_cast<MemTag>(i);
      EXPECT_EQ(backend->allocator().ledger(tag).live_bytes,
                passes.bytes[static_cast<std::size_t>(i)])
          << to_string(tag);
      // Drawing random weights takes workspace for a while.
      EXPECT_EQ(backend->allocator().ledger(tag).peak_bytes,
                plan.bytes[static_cast<std::size_t>(i)])
          << to_string(tag);
    }
  }
}

// A context has room for the longest prompt of those that share it, and methods for their own.
TEST_F(EngineMemory, LedgerEqualsThePlanOverASharedContext) {
  for (const int near : {1, 4}) {
    const std::unique_ptr<Backend> backend = make_cpu_backend({1, std::nullopt});
    const ToyPair pair(*backend, DType::kBF16, kVocab);
    PlanInput in;
    in.target = pair.target.config;
    in.draft = pair.draft.config;
    in.dtype = DType::kBF16;
    in.backend = backend.get();
    in.options = toy_options();
    in.options.draft_weights = Quantisation::kInt4;
    in.options.draft_cache = DraftCache::kRetrieval;
    in.options.budget = 512;  // lent where KV heads are far
    in.run = {1200, 20, all_methods(), spread_homes(2, 2, near)};
    in.run.longest_prompt = 1200;
    in.run.shortest_prompt = 300;
    const auto context = std::make_shared<Context>(
        *backend, pair.target, context_shape(*backend, pair.target, in.options, in.run));
    for (const std::int64_t prompt : {300, 1200, 700}) {
      in.run.max_prompt = prompt;
      context->set_room(Context::shape_of(in.run, in.options));
      const Methods methods(context, &pair.draft, in.options, in.run.methods);
      const MemoryPlan plan = plan_memory(in);
      for (int i = 0; i < static_cast<int>(MemTag::kCount); ++i) {
        const auto tag = static_cast<MemTag>(i);
        const std::int64_t planned = plan.bytes[static_cast<std::size_t>(i)];
        // Scratch stays as large as methods before needed it.
        if (tag == MemTag::kWorkspace && prompt == 700) {
          EXPECT_GE(backend->allocator().ledger(tag).live_bytes, planned);
          continue;
        }
        EXPECT_EQ(backend->allocator().ledger(tag).live_bytes, planned)
            << to_string(tag) << ", " << prompt << " tokens";
      }
    }
  }
}

// Context and methods of other sizes one after another: each takes what its plan says, and nothing
// stays behind.
TEST_F(EngineMemory, MemoryEndsWithContextAndMethods) {
  const std::unique_ptr<Backend> backend = make_cpu_backend({1, std::nullopt});
  Allocator& a = backend->allocator();
  const ToyPair pair(*backend, DType::kBF16, kVocab);
  std::array<std::int64_t, static_cast<std::size_t>(MemTag::kCount)> before{};
  const auto tag = [](std::size_t i) { return static_cast<MemTag>(i); };
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = a.ledger(tag(i)).live_bytes;
  for (int round = 0; round < 20; ++round) {
    PlanInput in;
    in.target = pair.target.config;
    in.draft = pair.draft.config;
    in.dtype = DType::kBF16;
    in.backend = backend.get();
    in.options = toy_options();
    in.options.budget = 64 + 64 * (19 - round);  // smaller and smaller: no peak hides the next
    in.run = {300 - round, 8, all_methods()};
    constexpr Selection kAll[] = {Selection::kMeanKey, Selection::kAttention, Selection::kH2O};
    in.options.selection = kAll[round % 3];
    in.options.dense_layers = round % 2;
    if (round % 3 == 1) in.options.draft_cache = DraftCache::kRetrieval;
    if (round % 5 == 0 && in.options.selection != Selection::kH2O) {
      in.options.rebuild.kind = RebuildPolicy::Kind::kToken;
      in.run.methods = {Method::kRetrieval};
      in.options.key_rank = 32;
      in.options.outlier_chunks = 3;
    }
    const MemoryPlan plan = plan_memory(in);
    a.reset_peaks();
    {
      ToyRun run(*backend, pair, in.options, in.run);
      run.prefill(toy_prompt(in.run.max_prompt, kVocab, 0));
      run.generate(in.run.methods.front(), 8, 1, 0);
    }
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(a.ledger(tag(i)).live_bytes, before[i]) << round << ' ' << to_string(tag(i));
      if (before[i] != 0) continue;  // weights
      EXPECT_EQ(a.ledger(tag(i)).peak_bytes, plan.bytes[i]) << round << ' ' << to_string(tag(i));
    }
  }
}

TEST_F(EngineMemory, TeacherForcingTakesWhatIsPlanned) {
  const ModelConfig c = toy_config("t", 2, 4, 2, 32, 1031);
  for (const std::int64_t chunk : {1, 24, 70, 500}) {
    SCOPED_TRACE(chunk);
    const std::unique_ptr<Backend> backend = make_cpu_backend({1, std::nullopt});
    PlanInput in;
    in.target = c;
    in.dtype = DType::kBF16;
    in.backend = backend.get();
    in.random_target = true;
    in.run = {150, 0, {}};
    const MemoryPlan plan = plan_teacher_forced(in, chunk);
    // The logits of a whole pass are in it, and no others.
    const std::int64_t logits = std::min<std::int64_t>(chunk, 150) * c.vocab * 4;
    EXPECT_GE(plan.bytes[static_cast<std::size_t>(MemTag::kActivations)], logits);
    const ModelWeights weights =
        random_weights(*backend, c, in.dtype, 11, MemTag::kTargetWeights, nullptr);
    std::int64_t fed = 0;
    teacher_forced_nll(*backend, weights, toy_prompt(150, c.vocab, 0), chunk,
                       [&](std::int64_t n) { fed = n; });
    EXPECT_EQ(fed, 150);
    for (int i = 0; i < static_cast<int>(MemTag::kCount); ++i) {
      const auto tag = static_cast<MemTag>(i);
      EXPECT_EQ(backend->allocator().ledger(tag).peak_bytes,
                plan.bytes[static_cast<std::size_t>(i)])
          << to_string(tag);
    }
    in.run.max_prompt = c.max_position + 1;
    EXPECT_THROW(plan_teacher_forced(in, chunk), Error);
  }
}

class HoldingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  std::int64_t own_bytes(MemTag tag) const override {
    return tag == MemTag::kWorkspace ? 1000 : tag == MemTag::kStaging ? 300 : 0;
  }
};

TEST_F(EngineMemory, WhatABackendHoldsIsPlanned) {
  PlanInput in;
  in.target = toy_config("t", 2, 4, 2, 32, 131);
  in.backend = backend_.get();
  in.dtype = DType::kF32;
  in.options = toy_options();
  in.run = {300, 40, {kBaselineMethod}};
  const MemoryPlan without = plan_memory(in);
  EXPECT_EQ(without.held_bytes, 0);
  const HoldingBackend holding(*backend_);
  in.backend = &holding;
  const MemoryPlan with = plan_memory(in);
  EXPECT_EQ(with.total_bytes(), without.total_bytes() + 1300);
  EXPECT_EQ(with.far_bytes(), 300);
  EXPECT_EQ(with.near_bytes(), without.total_bytes() + 1000);
  EXPECT_EQ(with.bytes_to_take(), without.total_bytes());
}

}  // namespace
}  // namespace triforce
