// Whole generations on the CUDA backend: the methods' streams, the CPU's probs, recorded passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "core/forwarding_backend.h"
#include "cpu/cpu_backend.h"
#include "cuda/cuda_backend.h"
#include "cuda/runtime.h"
#include "decode/lanes.h"
#include "decode/longer_prompts.h"
#include "model/full_cache.h"
#include "reference/reference_backend.h"
#include "triforce/model.h"
#include "triforce/plan.h"

namespace triforce {
namespace {

constexpr std::int64_t kVocab = 61, kPositions = 2048;

// As small as the kernels' head dimensions allow, of sizes that divide nothing.
ModelConfig tiny(const char* name, int layers, int heads) {
  ModelConfig c = toy_config(name, layers, heads, 1, 64, kVocab);
  c.hidden = 40;
  c.intermediate = 56;
  return c;
}
ToyPair toy_pair(Backend& b, DType dtype) {
  return {b, dtype, tiny("toy-target", 2, 2), tiny("toy-draft", 1, 1)};
}

class CudaEngineTest : public ::testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Backend> open(bool replay = true) {
    return make_cuda_backend({.device = 0, .dtype = GetParam(), .replay = replay});
  }
};

// Greedy and coupled streams equal the baseline's token for token.
TEST_P(CudaEngineTest, StreamsEqualTheBaselineTokenForToken) {
  const std::unique_ptr<Backend> backend = open();
  const ToyPair pair = toy_pair(*backend, GetParam());
  const std::vector<Variant> all = variants();
  // Each variant with one type, in turn: kernels of the two differ in conversions alone.
  for (std::size_t i = GetParam() == DType::kF16 ? 0 : 1; i < all.size(); i += 2) {
    const Variant& v = all[i];
    const std::int64_t tokens =
        std::max(v.options.gamma, v.options.inner_gamma) > 16 ? 2 : 10;  // long rounds
    ToyRun run(*backend, pair, v.options, {130, tokens, all_methods()});
    run.prefill(toy_prompt(130, kVocab, 1));
    expect_equal_streams(run_all(run, tokens, 3, 0), v.name);
  }
}

// A shorter prompt's context is smaller, which decides how its keys are split.
TEST_P(CudaEngineTest, LongerPromptsGetWhatTheyGetAlone) {
  const std::unique_ptr<Backend> cuda = open();
  ShortPasses backend(*cuda);
  const ToyPair pair = toy_pair(backend, GetParam());
  const std::vector<Method> methods = {Method::kTriForce, Method::kQuantised, Method::kLookup};
  RunShape shape{200, 8, methods};
  if (GetParam() == DType::kF16) shape.homes = spread_homes(2, 1, 1, 0);  // over the bus
  expect_longer_as_alone(backend, pair, toy_options(), shape, to_string(GetParam()));
}

TEST_P(CudaEngineTest, RecordedPassesGiveTheSameStreamsAsLaunchedOnes) {
  const std::unique_ptr<Backend> recorded = open(), launched = open(false);
  SpeculationOptions o = toy_options();
  o.gamma = 3;
  o.rebuild = {RebuildPolicy::Kind::kEvery, 8, 0};
  std::vector<Streams> streams;
  for (Backend* const b : {recorded.get(), launched.get()}) {
    const ToyPair pair = toy_pair(*b, GetParam());
    ToyRun run(*b, pair, o, {90, 14, all_methods()});
    run.prefill(toy_prompt(90, kVocab, 0));
    streams.push_back(run_all(run, 14, 5, 0));
    streams.push_back(run_all(run, 14, 6, 0));  // every pass has been recorded by now
  }
  for (const Method m : all_methods()) {
    EXPECT_EQ(streams[0].of(m).tokens, streams[2].of(m).tokens) << to_string(m);
    EXPECT_EQ(streams[1].of(m).tokens, streams[3].of(m).tokens) << to_string(m);
    EXPECT_EQ(streams[1].of(m).origins, streams[3].of(m).origins) << to_string(m);
  }
}

// Whatever gammas, drafter's caches and policies there are: what a generation can have is recorded
// before it begins. A pass that is left out is recorded in the second of two like generations.
TEST_P(CudaEngineTest, NothingIsRecordedWithinAGeneration) {
  const std::unique_ptr<Backend> backend = open();
  const ToyPair pair = toy_pair(*backend, GetParam());
  std::vector<Variant> settings;
  const auto add = [&](const std::string& name, const auto& change) {
    settings.push_back({name, toy_options()});
    SpeculationOptions& o = settings.back().options;
    o.gamma = 4;
    o.inner_gamma = 2;
    change(o);
  };
  using Kind = RebuildPolicy::Kind;
  add("rebuild never", [](auto& o) { o.synthetic = SyntheticAcceptance{{0.9}, 0.9}; });
  add("rebuild every", [](auto& o) { o.rebuild = {Kind::kEvery, 4, 0}; });
  add("rebuild adaptive, a window", [](auto& o) {
    o.rebuild = {Kind::kAdaptive, 0, 0.99};
    o.draft_cache = DraftCache::kWindow;
    o.draft_budget = 20;
  });
  add("rebuild every, chosen chunks of the drafter", [](auto& o) {
    o.rebuild = {Kind::kEvery, 4, 0};
    o.draft_cache = DraftCache::kRetrieval;
    o.draft_budget = 16;
  });
  add("rebuild token", [](auto& o) { o.rebuild.kind = Kind::kToken; });
  add("attention, a dense layer", [](auto& o) {
    o.selection = Selection::kAttention;
    o.dense_layers = 1;
  });
  for (const Variant& v : settings) {
    std::vector<Method> methods = {kBaselineMethod, Method::kRetrieval, Method::kStreaming};
    if (v.options.rebuild.kind == Kind::kNever) methods.push_back(Method::kLossyRetrieval);
    if (v.options.rebuild.kind != Kind::kToken) {
      methods.insert(methods.end(), {Method::kTriForce, Method::kStreamingHierarchy});
    }
    ToyRun run(*backend, pair, v.options, {40, 12, methods});
    run.prefill(toy_prompt(40, kVocab, 0));
    std::vector<Gammas> gammas = {{4, 2}};
    if (v.options.synthetic) gammas.insert(gammas.end(), {{2, 1}, {1, 0}, {0, 1}});
    for (const Gammas& g : gammas) {
      run.methods.set_gammas(g);
      for (const Method m : methods) {
        run.generate(m, 0, 5, 0);
        const std::size_t recorded = backend->recorded_passes();
        EXPECT_GT(recorded, 0U);
        for (const std::uint64_t seed : {5, 5}) run.generate(m, 12, seed, 0);
        EXPECT_EQ(backend->recorded_passes(), recorded)
            << to_string(m) << ", " << v.name << ", gammas " << g.gamma << " " << g.inner_gamma;
      }
    }
  }
}

// Of lanes that are one launch, whatever they end up drafting; and with heads in host memory, where
// each lane brings its own.
TEST_P(CudaEngineTest, EachLaneGetsWhatItGetsAlone) {
  const std::unique_ptr<Backend> backend = make_cuda_backend(
      {.dtype = GetParam(), .host_attention = make_host_attention({2, std::nullopt})});
  const ModelConfig target = toy_config("toy-target", 2, 4, 2, 64, kVocab);
  const ToyPair pair(*backend, GetParam(), target, tiny("toy-draft", 1, 1));
  SpeculationOptions o = toy_options();
  o.gamma = 3;
  o.ignore_eos = false;
  o.sampling = {0.6F, 1.0F, 0};
  RunShape shape{60, 6, {Method::kTriForce}, {}, 3};
  expect_lanes_as_alone(*backend, pair, o, shape, "near");
  o.selection = Selection::kAttention;
  o.acceptance = Acceptance::kCoupled;
  shape.homes = spread_homes(2, 2, 1, 1);  // and the host's attention
  expect_lanes_as_alone(*backend, pair, o, shape, "far");
}

// As in a sweep, whose cases have methods of their own over one context.
TEST_P(CudaEngineTest, RecordingsOfMethodsEndWithThem) {
  const std::unique_ptr<Backend> backend = open();
  const ToyPair pair = toy_pair(*backend, GetParam());
  const RunShape shape = {40, 4, all_methods()};
  const auto context = std::make_shared<Context>(*backend, pair.target, Context::shape_of(shape));
  ASSERT_TRUE(context->prefill(prompts_of({toy_prompt(40, kVocab, 0)}), {}, {}));
  std::set<std::size_t> with, after;
  for (int round = 0; round < 3; ++round) {
    {
      Methods methods(context, &pair.draft, toy_options(), shape.methods);
      methods.prefill_methods({}, {});
      for (const Method m : shape.methods) methods.generate(m, 0, 5, 0, {}, {});
      with.insert(backend->recorded_passes());
    }
    after.insert(backend->recorded_passes());
  }
  EXPECT_EQ(after.size(), 1U);
  EXPECT_EQ(with.size(), 1U);
  EXPECT_GT(*with.begin(), *after.begin() + 5);
}

// Recovery is measured beside the streams, which stay as they are, wherever the KV heads are; the
// first verification's is the reference backend's. What nothing verifies repeats itself.
TEST_P(CudaEngineTest, RecoveryIsTheReferencesWhereverHeadsAre) {
  const ModelConfig target = toy_config("toy-target", 2, 4, 2, 64, kVocab);
  const std::unique_ptr<Backend> device = make_cuda_backend(
      {.dtype = GetParam(), .host_attention = make_host_attention({2, std::nullopt})});
  // A streaming cache evicts granules.
  const std::unique_ptr<Backend> reference = make_reference_backend(device->kv_granule());
  const std::vector<Method> methods = {Method::kRetrieval, Method::kStreaming,
                                       Method::kLossyRetrieval, Method::kLossyStreaming};
  SpeculationOptions o = toy_options();
  o.measure_recovery = true;
  o.gamma = 2;
  o.sampling = {0.0F, 1.0F, 0};
  const auto generate = [&](Backend& b, const KvHomes& homes, std::int64_t count) {
    const ToyPair pair(b, GetParam(), target, tiny("toy-draft", 1, 1));
    ToyRun run(b, pair, o, {130, count, methods, homes});
    run.prefill(toy_prompt(130, kVocab, 1));
    const std::vector<Token> ar = run.generate(kBaselineMethod, count, 5, 0).tokens;
    std::vector<std::vector<double>> recovered;
    for (const Method m : {Method::kRetrieval, Method::kStreaming}) {
      const RunMetrics r = run.generate(m, count, 5, 0);
      EXPECT_EQ(r.tokens, ar) << to_string(m);
      recovered.push_back(r.recovery->by_layer);
    }
    for (const Method m : {Method::kLossyRetrieval, Method::kLossyStreaming}) {
      EXPECT_EQ(run.generate(m, count, 5, 0).tokens, run.generate(m, count, 5, 0).tokens);
    }
    return recovered;
  };
  const auto expected = generate(*reference, {}, 1);
  for (const KvHomes& homes : {KvHomes{}, spread_homes(2, 2, 2, 1)}) {  // and the host's attention
    const auto found = generate(*device, homes, 1);
    for (std::size_t m = 0; m < expected.size(); ++m) {
      for (std::size_t l = 0; l < expected[m].size(); ++l) {
        EXPECT_NEAR(found[m][l], expected[m][l], 0.02) << to_string(methods[m]) << ", layer " << l;
        EXPECT_LT(expected[m][l], 0.95);
      }
    }
  }
  const auto resident = generate(*device, {}, 6);
  EXPECT_EQ(generate(*device, spread_homes(2, 2, 2), 6), resident);
}

// The logits of the last 3 tokens, by one pass that is run three times (launched, recorded and
// replayed) over a cache of the tokens before, which are too many for a pass that is recorded.
std::vector<float> logits_of(Backend& b, LlamaModel& model, KvCache& cache,
                             std::span<const Token> tokens) {
  const std::size_t prefix = tokens.size() - 3;
  model.forward(tokens.first(prefix), cache, Logits::kNone, nullptr, RowPath::kThroughput);
  cache.mark();
  TensorView logits;
  for (int i = 0; i < 3; ++i) {
    logits = model.forward(tokens.subspan(prefix), cache, Logits::kAll);
    cache.rewind();
  }
  std::vector<float> host(static_cast<std::size_t>(logits.numel()));
  b.download(make_view(host.data(), DType::kF32, {logits.shape[0], kVocab}), logits);
  return host;
}

// Each round's cache lies where the one before lay, on host and device, its rows elsewhere in it.
TEST_P(CudaEngineTest, RecordingsEndWithTheCacheAndTheModelTheyAreOver) {
  constexpr std::int64_t kRows = kMaxBatchInvariantRows + 3;
  const std::unique_ptr<Backend> recorded = open(), launched = open(false);
  const ToyPair pairs[] = {toy_pair(*recorded, GetParam()), toy_pair(*launched, GetParam())};
  const ModelConfig& c = pairs[0].target.config;
  std::optional<LlamaModel> model;
  model.emplace(*recorded, pairs[0].target, kPositions, kRows, 3);
  LlamaModel reference(*launched, pairs[1].target, kPositions, kRows, 3);
  std::optional<FullCache> cache, other;
  const auto make = [&](std::optional<FullCache>& to, Backend& b, std::int64_t capacity) {
    to.emplace(b, c.layers, c.kv_heads, c.head_dim, capacity, kRows, GetParam());
  };
  const void* place = nullptr;
  for (std::uint32_t round = 0; round < 20; ++round) {
    const std::int64_t capacity = 100 + 64 * (round % 3);
    make(cache, *recorded, capacity);
    make(other, *launched, capacity);
    if (round == 0) place = cache->range(0, 0, 0).k;
    EXPECT_EQ(cache->range(0, 0, 0).k, place);
    const std::vector<Token> tokens = toy_prompt(kRows + 3, kVocab, round);
    ASSERT_EQ(logits_of(*recorded, *model, *cache, tokens),
              logits_of(*launched, reference, *other, tokens))
        << round;
    EXPECT_EQ(recorded->recorded_passes(), 1U);
    cache.reset();
    EXPECT_EQ(recorded->recorded_passes(), 0U);
  }
  make(cache, *recorded, 100);
  logits_of(*recorded, *model, *cache, toy_prompt(kRows + 3, kVocab, 0));
  EXPECT_EQ(recorded->recorded_passes(), 1U);
  model.reset();
  EXPECT_EQ(recorded->recorded_passes(), 0U);
}

// Streaming caches that are larger every time, none of them with room in what the last ones had.
TEST_P(CudaEngineTest, MethodsGiveTheDevicesMemoryBack) {
  const std::unique_ptr<Backend> backend = open();
  const ToyPair pair = toy_pair(*backend, GetParam());
  const RunShape shape = {90, 4, {Method::kStreaming}};
  const auto context = std::make_shared<Context>(*backend, pair.target, Context::shape_of(shape));
  SpeculationOptions o = toy_options();
  const auto free_bytes = [&] { return static_cast<double>(*cuda::inspect_device(0).free_bytes); };
  double first = 0;
  for (int round = 0; round < 20; ++round) {
    o.budget = 8 * (10000 + 250 * round);
    { const Methods methods(context, &pair.draft, o, shape.methods); }
    if (round == 0) first = free_bytes();
    EXPECT_NEAR(free_bytes(), first, 16 << 20) << round;  // less than one cache
  }
}

// The oracle with every activation rounded where the CUDA backend stores halves.
class RoundingBackend final : public ForwardingBackend {
 public:
  RoundingBackend(Backend& to, DType half) : ForwardingBackend(to), half_(half) {}
  void do_rms_norm(TensorView x, TensorView w, float eps, TensorView out) override {
    ForwardingBackend::do_rms_norm(x, w, eps, out);
    round(out);
  }
  void do_head_norm(TensorView x, TensorView w, float eps) override {
    ForwardingBackend::do_head_norm(x, w, eps);
    for (std::int64_t t = 0; t < x.shape[0]; ++t) {
      round(make_view(x.rows(t, 1).data, x.dtype, {x.shape[1] * x.shape[2]}));
    }
  }
  void do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                 RowPath path) override {
    ForwardingBackend::do_linear(x, w, out, accumulate, path);
    if (!accumulate) round(out);
  }
  void do_rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                      std::span<const KvView> sequences) override {
    ForwardingBackend::do_rope_append(qkv, positions, rope, q, sequences);
    round(q);
  }
  void do_attention(TensorView q, std::span<const KvView> sequences, const RopeView& rope,
                    TensorView out, std::span<const TensorView> mass, int chunk,
                    RowPath path) override {
    ForwardingBackend::do_attention(q, sequences, rope, out, mass, chunk, path);
    round(out);
  }
  void do_swiglu(TensorView gate_up, TensorView out) override {
    ForwardingBackend::do_swiglu(gate_up, out);
    round(out);
  }

 private:
  void round(const TensorView& v) {
    const Tensor halves(allocator(), half_, {v.numel()}, place(), MemTag::kWorkspace);
    const TensorView flat = make_view(v.data, v.dtype, {v.numel()});
    upload(halves.view(), flat);
    upload(flat, halves.view());
  }
  DType half_;
};

// The probs of every next token: of a prompt of prefill length, then of passes of 1, 7 and 32 rows.
std::vector<float> probs_of(Backend& b, DType dtype, std::int64_t prompt, Architecture of) {
  ModelConfig config = tiny("toy-target", 2, 2);
  config.architecture = of;
  const ToyPair pair = {b, dtype, config, tiny("toy-draft", 1, 1)};
  const ModelConfig& c = pair.target.config;
  FullCache cache(b, c.layers, c.kv_heads, c.head_dim, kPositions, prompt, dtype);
  LlamaModel model(b, pair.target, kPositions, prompt, kMaxBatchInvariantRows);
  const std::vector<Token> tokens = toy_prompt(prompt + 40, kVocab, 7);
  std::vector<float> all;
  std::int64_t at = 0;
  for (const std::int64_t n : {prompt, std::int64_t{1}, std::int64_t{7}, std::int64_t{32}}) {
    const TensorView logits = model.forward(
        std::span(tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)), cache,
        n > kMaxBatchInvariantRows ? Logits::kLast : Logits::kAll, nullptr, throughput_path(n));
    cache.commit(at += n);
    const Tensor probs(b.allocator(), DType::kF32, {logits.shape[0], kVocab}, b.place(),
                       MemTag::kProbs);
    b.to_probs(logits, {1.0F, 1.0F, 0}, probs.view());
    std::vector<float> host(static_cast<std::size_t>(probs.view().numel()));
    b.download(make_view(host.data(), DType::kF32, {logits.shape[0], kVocab}), probs.view());
    all.insert(all.end(), host.begin(), host.end());
  }
  return all;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

// What rounding every activation does to the probs is computed by the oracle. The device rounds at
// the same places and probabilities of attention besides, in other directions where a sum fell on
// the other side of a boundary: its error is that of an independent rounding, within twice as much.
TEST_P(CudaEngineTest, ProbsAreTheOraclesUpToRounding) {
  const std::unique_ptr<Backend> device = open(), oracle = make_reference_backend();
  RoundingBackend rounding(*oracle, GetParam());
  for (const Architecture of : {Architecture::kLlama, Architecture::kQwen2, Architecture::kQwen3}) {
    SCOPED_TRACE(to_string(of));
    const std::vector<float> exact = probs_of(*oracle, GetParam(), 77, of);
    const std::vector<float> rounded = probs_of(rounding, GetParam(), 77, of);
    const std::vector<float> got = probs_of(*device, GetParam(), 77, of);
    ASSERT_EQ(got.size(), exact.size());
    const double tolerance = 2 * largest_difference(exact, rounded);
    EXPECT_GT(tolerance, 0);
    EXPECT_LT(tolerance, 0.05);  // a mistake in an operation moves probs by more
    EXPECT_LE(largest_difference(exact, got), tolerance);
  }
}

// Attention of some or all far heads by the host: every method's stream is that of the baseline of
// the same homes, and the memory is what was planned.
TEST_P(CudaEngineTest, TheHostAttendsToRowsInItsMemory) {
  const ModelConfig target = toy_config("t", 2, 6, 3, 64, kVocab), draft = tiny("d", 1, 1);
  SpeculationOptions o = toy_options();
  o.acceptance = Acceptance::kCoupled;
  o.gamma = 3;
  o.rebuild = {RebuildPolicy::Kind::kEvery, 5, 0};
  for (const auto& [near, split] : {std::pair{0, 3}, {1, 3}, {0, 1}, {2, 1}}) {
    o.selection = near == 1 || split == 1 ? Selection::kAttention : Selection::kMeanKey;
    o.draft_weights = split == 3 ? Quantisation::kInt4 : Quantisation::kNone;
    const std::unique_ptr<Backend> backend = make_cuda_backend(
        {.dtype = GetParam(), .host_attention = make_host_attention({2, std::nullopt})});
    PlanInput in;
    in.target = target;
    in.draft = draft;
    in.random_target = in.random_draft = true;
    in.dtype = GetParam();
    in.backend = backend.get();
    in.options = o;
    in.run = {90,
              10,
              {Method::kTriForce, Method::kRetrieval},
              spread_homes(target.layers, target.kv_heads, near, split)};
    const MemoryPlan plan = plan_memory(in);
    const ToyPair pair(*backend, GetParam(), target, draft, {}, o.draft_weights);
    ToyRun run(*backend, pair, o, in.run);
    run.prefill(toy_prompt(90, kVocab, 0));
    const std::vector<Token> ar = run.generate(kBaselineMethod, 8, 5, 0).tokens;
    const std::string which = fmt::format("{} near, {} on the host", near, split);
    for (const Method m : in.run.methods) {
      EXPECT_EQ(run.generate(m, 8, 5, 0).tokens, ar) << to_string(m) << ", " << which;
    }
    for (std::size_t i = 0; i < plan.bytes.size(); ++i) {
      EXPECT_EQ(backend->allocator().ledger(static_cast<MemTag>(i)).peak_bytes, plan.bytes[i])
          << to_string(static_cast<MemTag>(i)) << ", " << which;
    }
  }
}

// What the host computes is what the device does, up to rounding.
TEST_P(CudaEngineTest, TheHostsAttentionIsTheDevicesUpToRounding) {
  const std::unique_ptr<Backend> backend = make_cuda_backend(
      {.dtype = GetParam(), .host_attention = make_host_attention({2, std::nullopt})});
  const ModelWeights weights = random_weights(*backend, toy_config("t", 2, 6, 3, 64, kVocab),
                                              GetParam(), 7, MemTag::kTargetWeights, {});
  const ModelConfig& c = weights.config;
  LlamaModel model(*backend, weights, 256, 64, 16);
  const std::vector<Token> tokens = toy_prompt(120, kVocab, 1);
  const auto logits = [&](const KvHomes& homes) {
    FullCache cache(*backend, c.layers, c.kv_heads, c.head_dim, 256, 64, GetParam(), homes);
    const Lease host(*backend, {.rows = 32,
                                .context = 256,
                                .heads = 6,
                                .kv_heads = 3,
                                .head_dim = 64,
                                .host_heads = 6,
                                .host_kv_heads = 3});
    std::vector<float> all;
    for (std::size_t at = 0; at < tokens.size(); at += 40) {
      const TensorView row = model.forward(std::span(tokens).subspan(at, 40), cache, Logits::kLast,
                                           nullptr, RowPath::kThroughput);
      for (int i = 0; i < 2; ++i) {  // twice: rows are appended again
        cache.truncate(static_cast<std::int64_t>(at) + 35);
        const TensorView rows =
            model.forward(std::span(tokens).subspan(at + 35, 5), cache, Logits::kAll);
        std::vector<float> values(static_cast<std::size_t>(rows.numel()));
        backend->download(make_view(values.data(), DType::kF32, {5, kVocab}), rows);
        all.insert(all.end(), values.begin(), values.end());
      }
      EXPECT_NE(row.data, nullptr);
    }
    return all;
  };
  const std::vector<float> device = logits({}), host = logits({{0, 0}, 3, {3, 3}}),
                           hybrid = logits({{1, 0}, 3, {1, 2}});
  double spread = 0, worst = 0;
  for (std::size_t i = 0; i < device.size(); ++i) {
    spread = std::max(spread, std::abs(double{device[i]}));
    worst = std::max({worst, std::abs(double{device[i]} - double{host[i]}),
                      std::abs(double{device[i]} - double{hybrid[i]})});
  }
  EXPECT_GT(worst, 0);  // it is another processor
  EXPECT_LT(worst, spread * (GetParam() == DType::kF16 ? 0x1p-7 : 0x1p-4));
}

INSTANTIATE_TEST_SUITE_P(Types, CudaEngineTest, ::testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace triforce
