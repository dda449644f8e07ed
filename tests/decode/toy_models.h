// Small random pairs for tests of the engine: a target with grouped queries and a smaller drafter.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "decode/sizes.h"
#include "triforce/decode.h"
#include "triforce/weights.h"

namespace triforce {

inline ModelConfig toy_config(const char* name, int layers, int heads, int kv_heads, int head_dim,
                              std::int64_t vocab) {
  ModelConfig c;
  c.name = name;
  c.layers = layers;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.hidden = static_cast<std::int64_t>(heads) * head_dim;
  c.intermediate = 2 * c.hidden + 8;
  c.vocab = vocab;
  c.max_position = 4096;
  c.eos = {2};
  return c;
}

struct ToyPair {
  ToyPair(Backend& backend, DType dtype, std::int64_t vocab)
      : ToyPair(backend, dtype, toy_config("toy-target", 2, 4, 2, 16, vocab),
                toy_config("toy-draft", 1, 2, 2, 16, vocab)) {}
  ToyPair(Backend& backend, DType dtype, const ModelConfig& target_config,
          const ModelConfig& draft_config, const Shard& shard = {},
          Quantisation drafts = Quantisation::kInt4)
      : target(random_weights(backend, target_config, dtype, 11, MemTag::kTargetWeights, nullptr,
                              shard, drafts)),
        draft(random_weights(backend, draft_config, dtype, 12, MemTag::kDraftWeights, nullptr)) {}
  ModelWeights target, draft;
};

// Every lossless method of the table but the baseline.
inline const std::vector<Method>& all_methods() {
  static const std::vector<Method> methods = [] {
    std::vector<Method> all;
    for (const MethodSpec& m : method_table())
      if (!m.is_baseline() && m.is_lossless()) all.push_back(m.method);
    return all;
  }();
  return methods;
}

inline std::vector<Token> toy_prompt(std::int64_t n, std::int64_t vocab, std::uint32_t index) {
  std::vector<Token> tokens(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    tokens[static_cast<std::size_t>(i)] = static_cast<Token>(
        philox_uniform({9, index, 0, 0}, Purpose::kWeights, static_cast<std::uint32_t>(i)) *
        static_cast<double>(vocab));
  return tokens;
}

// A draft tree with branches, of at least 2 nodes.
inline DraftTree random_tree(int nodes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int16_t> parents = {-1, -1};
  for (int i = 2; i < nodes; ++i) {
    // Most often the next node of a parent, at times one that is some nodes on.
    int parent = parents.back() + (random() % 3 == 0 ? static_cast<int>(random() % 3) : 0);
    parents.push_back(static_cast<std::int16_t>(std::min(parent, i - 1)));
  }
  return DraftTree(parents);
}

// Options for short prompts: caches much smaller than the prompt.
inline SpeculationOptions toy_options() {
  SpeculationOptions o;
  o.budget = 64;
  o.chunk_size = 8;
  o.draft_budget = 64;
  o.ignore_eos = true;
  return o;
}

// Options under which every method's stream equals the baseline's.
struct Variant {
  std::string name;
  SpeculationOptions options;
};

inline std::vector<Variant> variants() {
  std::vector<Variant> all;
  const auto add = [&](const std::string& name, const auto& change) {
    SpeculationOptions o = toy_options();
    o.acceptance = Acceptance::kCoupled;
    o.sampling = {1.0F, 1.0F, 0};
    change(o);
    all.push_back({name, o});
  };
  add("coupled T 1", [](auto&) {});
  add("coupled T 0.6 top-p 0.9", [](auto& o) { o.sampling = {0.6F, 0.9F, 0}; });
  add("coupled T 1 top-k 5, a tree", [](auto& o) {
    o.sampling = {1.0F, 1.0F, 5};
    o.tree = random_tree(12, 1);
  });
  add("greedy", [](auto& o) {
    o.sampling = {0.0F, 1.0F, 0};
    o.acceptance = Acceptance::kSpeculative;
  });
  add("gamma 1", [](auto& o) { o.gamma = 1; });
  add("gamma 17 inner 3", [](auto& o) { o.gamma = 17, o.inner_gamma = 3; });
  add("gamma 31 inner 31", [](auto& o) { o.gamma = 31, o.inner_gamma = 31; });
  add("gamma 2 inner 63, attention selection, dense layer", [](auto& o) {
    o.gamma = 2;
    o.inner_gamma = kMaxGamma;
    o.dense_layers = 1;
    o.selection = Selection::kAttention;
  });
  add("rebuild every 8", [](auto& o) { o.rebuild = {RebuildPolicy::Kind::kEvery, 8, 0}; });
  add("rebuild adaptive", [](auto& o) { o.rebuild = {RebuildPolicy::Kind::kAdaptive, 0, 0.99}; });
  add("attention selection", [](auto& o) { o.selection = Selection::kAttention; });
  add("dense layer", [](auto& o) { o.dense_layers = 1; });
  add("dense layer, attention selection, rebuild every 8, two trees", [](auto& o) {
    o.tree = random_tree(16, 2);
    o.inner_tree = random_tree(5, 3);
    o.dense_layers = 1;
    o.selection = Selection::kAttention;
    o.rebuild = {RebuildPolicy::Kind::kEvery, 8, 0};
  });
  add("h2o, int8 rows of drafts", [](auto& o) {
    o.selection = Selection::kH2O, o.dense_layers = 1;
    o.draft_kv = KvBits::kInt8;
  });
  add("snapkv, rebuild every 20", [](auto& o) {
    o.selection = Selection::kSnapKv;
    o.rebuild = {RebuildPolicy::Kind::kEvery, 20, 0};
  });
  add("quest, rebuild every 20", [](auto& o) {
    o.selection = Selection::kQuest;
    o.rebuild = {RebuildPolicy::Kind::kEvery, 20, 0};
  });
  add("keys of rank 16, two outlier chunks, dense layer", [](auto& o) {
    o.key_rank = 16;
    o.outlier_chunks = 2;
    o.dense_layers = 1;
    o.rebuild = {RebuildPolicy::Kind::kEvery, 20, 0};
  });
  add("int4 weights of drafts, attention selection, dense layer, a tree", [](auto& o) {
    o.draft_weights = Quantisation::kInt4;
    o.draft_kv = KvBits::kInt8;
    o.selection = Selection::kAttention;
    o.dense_layers = 1;
    o.tree = random_tree(12, 4);
  });
  add("budget beyond the prompt", [](auto& o) { o.budget = 1024; });
  add("a drafter with one token", [](auto& o) { o.draft_budget = 1; });
  add("a drafter beyond its positions", [](auto& o) { o.draft_budget = 5000; });
  add("a drafter with a window", [](auto& o) {
    o.draft_cache = DraftCache::kWindow;
    o.draft_budget = 150;
    o.inner_gamma = 2;
  });
  add("a drafter with chosen chunks", [](auto& o) {
    o.draft_cache = DraftCache::kRetrieval;
    o.inner_gamma = 2;
  });
  add("a drafter with chosen chunks, attention selection, dense layer, two trees", [](auto& o) {
    o.draft_cache = DraftCache::kRetrieval;
    o.draft_budget = 16;
    o.selection = Selection::kAttention;
    o.dense_layers = 1;
    o.tree = random_tree(12, 5);
    o.inner_tree = random_tree(5, 6);
  });
  add("chunk 5", [](auto& o) { o.chunk_size = 5, o.budget = 60; });
  return all;
}

// Without methods that cannot draft what the options ask for: a lookup has no tree.
inline RunShape possible(RunShape run, const SpeculationOptions& options) {
  std::erase_if(run.methods, [&](Method m) {
    const MethodSpec& spec = spec_of(m);
    return spec.speculates() && spec.looks_up() && !options.draft_of(spec, 0).is_chain();
  });
  return run;
}

inline std::vector<PromptTokens> prompts_of(const std::vector<std::vector<Token>>& lanes) {
  return {lanes.begin(), lanes.end()};
}

// A context and those methods over it that are possible, for runs of one shape.
struct ToyRun {
  ToyRun(Backend& backend, const ToyPair& pair, const SpeculationOptions& options,
         const RunShape& run, Communicator* ranks = nullptr)
      : asked(possible(run, options).methods),
        shared(std::make_shared<Context>(
            backend, pair.target,
            context_shape(backend, pair.target, options, possible(run, options)), ranks)),
        context(*shared),
        methods(shared, &pair.draft, options, asked) {}
  // False: a stop was requested.
  bool prefill(const std::vector<Token>& prompt, const StopRequested& stop = {}) {
    return prefill_lanes({prompt}, stop);
  }
  bool prefill_lanes(const std::vector<std::vector<Token>>& prompts,
                     const StopRequested& stop = {}) {
    return context.prefill(prompts_of(prompts), {}, stop) &&
           !methods.prefill_methods({}, stop).interrupted;
  }
  // Of the first lane.
  RunMetrics generate(Method m, std::int64_t count, std::uint64_t seed, std::uint32_t prompt,
                      const TokenCallback& on_tokens = {}, const StopRequested& stop = {}) {
    return methods.generate(m, count, seed, prompt, on_tokens, stop).front();
  }
  std::vector<Method> asked;
  std::shared_ptr<Context> shared;
  Context& context;
  Methods methods;
};

inline auto counters_of(const LevelCounters& c) {
  return std::tie(c.name, c.rounds, c.requested, c.drafted, c.accepted, c.rejected, c.emitted,
                  c.tested_at, c.accepted_at, c.histogram, c.by_draft_length);
}

// All but the times.
inline void expect_equal_runs(const RunMetrics& a, const RunMetrics& b, const std::string& what) {
  EXPECT_EQ(a.tokens, b.tokens) << what;
  EXPECT_EQ(a.origins, b.origins) << what;
  EXPECT_EQ(a.rounds, b.rounds) << what;
  EXPECT_EQ(a.rebuilds, b.rebuilds) << what;
  EXPECT_EQ(a.stopped_at_eos, b.stopped_at_eos) << what;
  ASSERT_EQ(a.levels.size(), b.levels.size()) << what;
  for (std::size_t l = 0; l < a.levels.size(); ++l) {
    EXPECT_EQ(counters_of(a.levels[l]), counters_of(b.levels[l])) << what << ", level " << l;
    const auto &v = a.levels[l].acceptance_vector, &w = b.levels[l].acceptance_vector;
    ASSERT_EQ(v.has_value(), w.has_value()) << what;
    if (v) {
      EXPECT_EQ(std::tie(v->tested, v->accepted), std::tie(w->tested, w->accepted)) << what;
    }
  }
  ASSERT_EQ(a.recovery.has_value(), b.recovery.has_value()) << what;
  if (!a.recovery) return;
  EXPECT_EQ(a.recovery->rows, b.recovery->rows) << what;
  EXPECT_EQ(a.recovery->by_layer, b.recovery->by_layer) << what;
}

// What every lossless method made of one prompt.
struct Streams {
  std::map<Method, RunMetrics> by_method;
  const RunMetrics& of(Method m) const { return by_method.at(m); }
};

inline Streams run_all(ToyRun& run, std::int64_t count, std::uint64_t seed, std::uint32_t prompt) {
  Streams s;
  s.by_method[kBaselineMethod] = run.generate(kBaselineMethod, count, seed, prompt);
  for (const Method m : run.asked) {
    if (spec_of(m).is_lossless()) s.by_method[m] = run.generate(m, count, seed, prompt);
  }
  return s;
}

inline void expect_equal_streams(const Streams& s, const std::string& what) {
  const std::vector<Token>& baseline = s.of(kBaselineMethod).tokens;
  for (const auto& [method, run] : s.by_method)
    EXPECT_EQ(run.tokens, baseline) << to_string(method) << ": " << what;
}

}  // namespace triforce
