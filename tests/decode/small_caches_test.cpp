// What small caches recover of the target's attention, and what the target generates with them when
// nothing verifies it, through the real loop.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "cpu/cpu_backend.h"
#include "decode/toy_models.h"
#include "model/streaming_cache.h"
#include "reference/reference_backend.h"
#include "triforce/plan.h"

namespace triforce {
namespace {

constexpr std::int64_t kVocab = 61;
const std::vector<Method> kMeasured = {Method::kTriForce, Method::kRetrieval, Method::kStreaming,
                                       Method::kStreamingHierarchy};
const std::vector<Method> kLossy = {Method::kLossyRetrieval, Method::kLossyStreaming};

double mean_of(const RecoveryCounters& c) {
  return std::accumulate(c.by_layer.begin(), c.by_layer.end(), 0.0) /
         static_cast<double>(c.rows * std::ssize(c.by_layer));
}

struct SmallCaches : ::testing::Test {
  std::unique_ptr<Backend> backend_ = make_cpu_backend({1, std::nullopt});
};

TEST_F(SmallCaches, MeasuringRecoveryChangesNoToken) {
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  for (const Variant& v : variants()) {
    SpeculationOptions o = v.options;
    ToyRun without(*backend_, pair, o, {203, 60, kMeasured});
    o.measure_recovery = true;
    ToyRun with(*backend_, pair, o, {203, 60, kMeasured});
    without.prefill(toy_prompt(203, kVocab, 0));
    with.prefill(toy_prompt(203, kVocab, 0));
    EXPECT_FALSE(with.generate(kBaselineMethod, 60, 5, 0).recovery);
    for (const Method m : kMeasured) {
      const RunMetrics a = without.generate(m, 60, 5, 0), b = with.generate(m, 60, 5, 0);
      EXPECT_EQ(a.tokens, b.tokens) << v.name << ' ' << to_string(m);
      EXPECT_EQ(a.origins, b.origins) << v.name << ' ' << to_string(m);
      EXPECT_FALSE(a.recovery);
      ASSERT_TRUE(b.recovery);
      EXPECT_EQ(b.recovery->rows, b.rounds) << v.name << ' ' << to_string(m);
      const bool all_there = o.budget > 203 + 60;
      const double mean = mean_of(*b.recovery);
      EXPECT_TRUE(all_there ? mean == 1 : mean > 0.1 && mean < 0.999) << mean << ' ' << v.name;
      EXPECT_TRUE(o.dense_layers == 0 ||
                  b.recovery->by_layer[0] == static_cast<double>(b.recovery->rows));
      EXPECT_EQ(with.generate(m, 60, 5, 0).recovery->by_layer, b.recovery->by_layer);
    }
  }
}

// Of the first verification, whose attention is the prompt's: as by the reference backend, in any
// instruction set and whoever shares the KV heads.
TEST_F(SmallCaches, RecoveryIsThatOfTheReferenceBackend) {
  SpeculationOptions o = toy_options();
  o.measure_recovery = true;
  o.sampling = {0.0F, 1.0F, 0};
  o.gamma = 3;
  const auto first_round = [&](Backend& b, const KvHomes& homes) {
    const ToyPair pair(b, DType::kF32, kVocab);
    ToyRun run(b, pair, o, {150, 1, kMeasured, homes});
    run.prefill(toy_prompt(150, kVocab, 2));
    std::vector<std::vector<double>> all;
    for (const Method m : kMeasured) all.push_back(run.generate(m, 1, 5, 0).recovery->by_layer);
    return all;
  };
  const std::unique_ptr<Backend> reference = make_reference_backend(backend_->kv_granule());
  for (const Selection selection : {Selection::kMeanKey, Selection::kAttention}) {
    o.selection = selection;
    const auto expected = first_round(*reference, {});
    for (const cpu::Isa isa : cpu::usable_isas()) {
      const std::unique_ptr<Backend> b = make_cpu_backend({1, isa});
      const auto found = first_round(*b, {});
      // Half of the KV heads through slots, and with the host computing one of a layer.
      EXPECT_EQ(first_round(*b, spread_homes(2, 2, 2)), found);
      EXPECT_EQ(first_round(*b, spread_homes(2, 2, 2, 1)), found);
      for (std::size_t m = 0; m < expected.size(); ++m) {
        for (std::size_t l = 0; l < expected[m].size(); ++l) {
          EXPECT_NEAR(found[m][l], expected[m][l], 1e-4) << to_string(kMeasured[m]) << ' ' << l;
          EXPECT_LT(expected[m][l], 0.99);
        }
      }
    }
  }
}

// Top-K of each token's own attention holds more of it than what was selected once, and this the
// less the longer ago.
TEST_F(SmallCaches, SelectionsForEachTokenRecoverMore) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  SpeculationOptions o = toy_options();
  o.measure_recovery = true;
  o.selection = Selection::kAttention;
  o.chunk_size = 1;
  o.gamma = 1;
  o.sampling = {1.0F, 1.0F, 0};
  std::map<RebuildPolicy::Kind, double> mean;
  for (const auto kind : {RebuildPolicy::Kind::kToken, RebuildPolicy::Kind::kNever}) {
    o.rebuild.kind = kind;
    ToyRun run(*backend_, pair, o, {400, 40, {Method::kRetrieval}});
    run.prefill(toy_prompt(400, kVocab, 1));
    const RecoveryCounters r = *run.generate(Method::kRetrieval, 40, 7, 0).recovery;
    mean[kind] = mean_of(r);
    ASSERT_FALSE(r.by_age.empty());
    EXPECT_EQ(r.by_age.front().from_tokens, 0);
    EXPECT_EQ(r.by_age.size() == 1, kind == RebuildPolicy::Kind::kToken);
  }
  EXPECT_GT(mean[RebuildPolicy::Kind::kToken], mean[RebuildPolicy::Kind::kNever]);
}

TEST_F(SmallCaches, AgesAreTokensSinceTheSelection) {
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  SpeculationOptions o = toy_options();
  o.measure_recovery = true;
  ToyRun run(*backend_, pair, o, {203, 60, kMeasured});
  run.prefill(toy_prompt(203, kVocab, 0));
  const RunMetrics never = run.generate(Method::kRetrieval, 60, 5, 0);
  EXPECT_EQ(never.recovery->by_age.front().from_tokens, 0);
  EXPECT_EQ(never.recovery->by_age.front().rows, 1);  // the prompt's last token
  EXPECT_GE(never.recovery->by_age.back().from_tokens, 32);
  EXPECT_LE(never.recovery->by_age.back().from_tokens, 60);
  EXPECT_TRUE(run.generate(Method::kStreaming, 60, 5, 0).recovery->by_age.empty());
  o.rebuild = {RebuildPolicy::Kind::kEvery, 8, 0};
  ToyRun again(*backend_, pair, o, {203, 60, kMeasured});
  again.prefill(toy_prompt(203, kVocab, 0));
  const RunMetrics every = again.generate(Method::kRetrieval, 60, 5, 0);
  EXPECT_GT(every.rebuilds, 2);
  EXPECT_LE(every.recovery->by_age.back().from_tokens, 16);  // 8 tokens and a round
}

TEST(RecoveryCounters, AddAndMerge) {
  RecoveryCounters a, b;
  const std::vector<double> one = {0.25, 0.5}, two = {0.5, 1.0};
  for (const std::int64_t age : {0, 1, 2, 3, 4, 7, 8}) a.add(age, one);
  b.add(5, two);
  b.add(100, two);
  a.merge(b);
  EXPECT_EQ(a.rows, 9);
  EXPECT_EQ(a.by_layer, (std::vector<double>{7 * 0.25 + 1, 7 * 0.5 + 2}));
  std::vector<std::pair<std::int64_t, std::int64_t>> groups;
  for (const auto& g : a.by_age) groups.emplace_back(g.from_tokens, g.rows);
  EXPECT_EQ(groups, (decltype(groups){{0, 1}, {1, 1}, {2, 2}, {4, 3}, {8, 1}, {64, 1}}));
  EXPECT_EQ(a.by_age[3].by_layer, (std::vector<double>{1, 2}));
  RecoveryCounters c;
  c.add(std::nullopt, one);
  EXPECT_TRUE(c.by_age.empty());
}

TEST_F(SmallCaches, RecoveryTakesWhatIsPlanned) {
  Allocator& a = backend_->allocator();
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  PlanInput in;
  in.target = pair.target.config;
  in.draft = pair.draft.config;
  in.dtype = DType::kBF16;
  in.backend = backend_.get();
  in.options = toy_options();
  in.options.measure_recovery = true;
  in.run = {300, 8, {Method::kTriForce, Method::kStreaming}};
  const MemoryPlan plan = plan_memory(in);
  a.reset_peaks();
  ToyRun run(*backend_, pair, in.options, in.run);
  run.prefill(toy_prompt(300, kVocab, 0));
  run.generate(Method::kTriForce, 8, 1, 0);
  const auto tag = static_cast<std::size_t>(MemTag::kWorkspace);
  EXPECT_EQ(a.ledger(MemTag::kWorkspace).peak_bytes, plan.bytes[tag]);
  in.options.measure_recovery = false;
  EXPECT_LT(plan_memory(in).bytes[tag], plan.bytes[tag]);
}

TEST_F(SmallCaches, WhatCannotBeMeasuredIsRefused) {
  const auto refusal = [&](const SpeculationOptions& o, const RunShape& run) {
    PlanInput in;
    in.target = toy_config("t", 2, 4, 2, 16, kVocab);
    in.draft = toy_config("d", 1, 2, 2, 16, kVocab);
    in.backend = backend_.get();
    in.options = o;
    in.run = run;
    try {
      plan_memory(in);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage);
      return std::string(e.what());
    }
    return std::string();
  };
  SpeculationOptions o = toy_options();
  o.measure_recovery = true;
  EXPECT_EQ(refusal(o, {100, 20, kMeasured}), "");
  EXPECT_EQ(refusal(o, {100, 20, {Method::kDraft, Method::kStreaming}}), "");
  for (const Method m : {kBaselineMethod, Method::kDraft, Method::kLossyStreaming}) {
    EXPECT_NE(refusal(o, {100, 20, {m}}).find("--measure-recovery: expected a method"),
              std::string::npos)
        << to_string(m);
  }
  o = toy_options();
  o.rebuild = {RebuildPolicy::Kind::kEvery, 8, 0};
  EXPECT_NE(refusal(o, {100, 20, {Method::kLossyRetrieval}}).find("expected never or token"),
            std::string::npos);
  EXPECT_EQ(refusal(o, {100, 20, {Method::kLossyStreaming}}), "");
}

// Rule 3 without a verification: with room for all tokens a lossy method is the target.
TEST_F(SmallCaches, LossyMethodsWithRoomForAllTokensAreTheTarget) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  for (const int dense : {0, 1}) {
    SpeculationOptions o = toy_options();
    o.dense_layers = dense;
    o.acceptance = Acceptance::kCoupled;
    o.sampling = {1.0F, 1.0F, 0};
    o.budget = 512;
    ToyRun run(*backend_, pair, o, {203, 90, kLossy});
    run.prefill(toy_prompt(203, kVocab, 0));
    const std::vector<Token> target = run.generate(kBaselineMethod, 90, 5, 0).tokens;
    for (const Method m : kLossy) {
      const RunMetrics r = run.generate(m, 90, 5, 0);
      EXPECT_EQ(r.tokens, target) << to_string(m) << ", dense layers " << dense;
      EXPECT_EQ(r.rounds, 90);
      EXPECT_TRUE(r.levels.empty());
      EXPECT_FALSE(r.recovery);
    }
  }
}

// KL from the full cache: none with its rows, some with others, and less with more bits.
TEST_F(SmallCaches, DivergenceIsThatOfTheirCache) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  SpeculationOptions o = toy_options();
  o.sampling = {1.0F, 1.0F, 0};
  std::vector<Method> lossy = kLossy;
  lossy.push_back(Method::kLossyQuantised);
  const auto means = [&](const SpeculationOptions& options) {
    ToyRun run(*backend_, pair, options, {203, 40, lossy});
    run.prefill(toy_prompt(203, kVocab, 0));
    const std::vector<Token> target = run.generate(kBaselineMethod, 40, 5, 0).tokens;
    std::map<Method, double> all;
    for (const Method m : lossy) {
      const std::vector<Token> tokens = run.generate(m, 40, 5, 0).tokens;
      const std::vector<double> values = run.methods.divergence(m, 0, tokens);
      EXPECT_EQ(values.size(), 40U);
      EXPECT_EQ(run.methods.divergence(m, 0, tokens), values);
      EXPECT_EQ(run.methods.divergence(m, 0, std::span(tokens).first(7)),
                std::vector<double>(values.begin(), values.begin() + 7));
      for (const double x : values) EXPECT_GE(x, 0);
      all[m] = std::accumulate(values.begin(), values.end(), 0.0) / 40;
      EXPECT_EQ(run.generate(m, 40, 5, 0).tokens, tokens);
    }
    EXPECT_EQ(run.generate(kBaselineMethod, 40, 5, 0).tokens, target);
    EXPECT_TRUE(run.methods.divergence(lossy.front(), 0, {}).empty());
    return all;
  };
  std::map<Method, double> int4 = means(o);
  o.draft_kv = KvBits::kInt8;
  o.budget = 512;  // room for all tokens
  std::map<Method, double> int8 = means(o);
  for (const Method m : kLossy) EXPECT_LT(100 * int8[m], int4[m]) << to_string(m);
  EXPECT_GT(int8[Method::kLossyQuantised], 0);
  EXPECT_LT(20 * int8[Method::kLossyQuantised], int4[Method::kLossyQuantised]);
}

// With less room they are not, repeat themselves, and leave the caches to others as they were.
TEST_F(SmallCaches, LossyMethodsAreWhatTheirCacheMakesOfThem) {
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  for (const Variant& v : variants()) {
    SpeculationOptions o = v.options;
    if (o.budget > 203 || o.rebuild.kind != RebuildPolicy::Kind::kNever) continue;
    std::vector<Method> methods = all_methods();
    std::vector<Method> lossy = kLossy;
    lossy.push_back(Method::kLossyQuantised);
    methods.insert(methods.end(), lossy.begin(), lossy.end());
    ToyRun run(*backend_, pair, o, {203, 90, methods});
    run.prefill(toy_prompt(203, kVocab, 0));
    const Streams before = run_all(run, 90, 5, 0);
    for (const Method m : lossy) {
      const RunMetrics r = run.generate(m, 90, 5, 0);
      EXPECT_EQ(r.tokens.size(), 90U);
      const bool may_be_equal = o.draft_kv == KvBits::kInt8 && m == Method::kLossyQuantised;
      EXPECT_TRUE(r.tokens != before.of(kBaselineMethod).tokens || may_be_equal)
          << v.name << ' ' << to_string(m);
      expect_equal_streams(run_all(run, 90, 5, 0), v.name);
      EXPECT_EQ(run.generate(m, 90, 5, 0).tokens, r.tokens) << v.name << ' ' << to_string(m);
    }
  }
}

// A model over a streaming cache by hand: one token after another, greedily.
TEST_F(SmallCaches, LossyStreamingIsAModelOverItsCache) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  SpeculationOptions o = toy_options();
  o.sampling = {0.0F, 1.0F, 0};
  const std::vector<Token> prompt = toy_prompt(203, kVocab, 0);
  ToyRun run(*backend_, pair, o, {203, 50, kLossy});
  run.prefill(prompt);
  LlamaModel model(*backend_, pair.target, 512, 128, 32);
  StreamingCache cache(*backend_, 2, 2, 16, o.budget, kStreamingChunk, DType::kF32);
  for (std::size_t at = 0; at + 1 < prompt.size();) {
    const std::size_t n = std::min<std::size_t>(kStreamingChunk, prompt.size() - 1 - at);
    model.forward(std::span(prompt).subspan(at, n), cache, Logits::kNone, nullptr,
                  throughput_path(static_cast<std::int64_t>(n)));
    cache.commit(cache.length());
    at += n;
  }
  std::vector<Token> expected;
  for (Token next = prompt.back(); expected.size() < 50;) {
    const TensorView row = model.forward({&next, 1}, cache, Logits::kLast);
    cache.commit(cache.length());
    const float* const logits = row.as<float>();
    next = static_cast<Token>(std::max_element(logits, logits + kVocab) - logits);
    expected.push_back(next);
  }
  EXPECT_EQ(run.generate(Method::kLossyStreaming, 50, 5, 0).tokens, expected);
}

}  // namespace
}  // namespace triforce
