#include "triforce/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/forwarding_backend.h"
#include "cpu/cpu_backend.h"
#include "decode/toy_models.h"
#include "decode/window_scorer.h"
#include "model/full_cache.h"
#include "model/retrieval_cache.h"
#include "model/streaming_cache.h"
#include "reference/reference_backend.h"
#include "selftest/lossless.h"
#include "triforce/plan.h"
#include "triforce/sampling.h"

namespace triforce {
namespace {

constexpr std::int64_t kVocab = 61;

struct Numerics {
  cpu::Isa isa;
  DType dtype;
};

// Every instruction level of this machine, and every storage type at the best of them.
std::vector<Numerics> all_numerics() {
  std::vector<Numerics> all;
  for (const cpu::Isa isa : cpu::usable_isas()) all.push_back({isa, DType::kBF16});
  all.push_back({cpu::best_isa(), DType::kF32});
  all.push_back({cpu::best_isa(), DType::kF16});
  return all;
}

std::string name_of(const Numerics& n) {
  std::string name = std::string(to_string(n.isa)) + "_" + to_string(n.dtype);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class EngineTest : public ::testing::TestWithParam<Numerics> {
 protected:
  std::unique_ptr<Backend> backend_ = make_cpu_backend({1, GetParam().isa});
};

// Greedy and coupled streams equal the baseline's token for token.
TEST_P(EngineTest, StreamsEqualTheBaselineTokenForToken) {
  const ToyPair pair(*backend_, GetParam().dtype, kVocab);
  for (const Variant& v : variants()) {
    ToyRun run(*backend_, pair, v.options, {203, 90, all_methods()});
    for (std::uint32_t prompt = 0; prompt < 2; ++prompt) {
      run.prefill(toy_prompt(prompt == 0 ? 203 : 130, kVocab, prompt));
      expect_equal_streams(run_all(run, 90, prompt + 1, prompt),
                           v.name + ", prompt " + std::to_string(prompt));
    }
  }
}

TEST_P(EngineTest, RewindingGivesTheSameRunAgain) {
  const ToyPair pair(*backend_, GetParam().dtype, kVocab);
  SpeculationOptions o = toy_options();
  o.rebuild = {RebuildPolicy::Kind::kEvery, 8, 0};
  for (const Selection selection : {Selection::kMeanKey, Selection::kH2O}) {
    o.selection = selection;
    ToyRun run(*backend_, pair, o, {150, 60, all_methods()});
    run.prefill(toy_prompt(150, kVocab, 0));
    const Streams first = run_all(run, 60, 5, 0), second = run_all(run, 60, 5, 0);
    for (const auto& [method, metrics] : first.by_method) {
      EXPECT_EQ(metrics.tokens, second.of(method).tokens) << to_string(method);
      EXPECT_EQ(metrics.origins, second.of(method).origins) << to_string(method);
    }
    EXPECT_GT(first.of(Method::kTriForce).rebuilds, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Numerics, EngineTest, ::testing::ValuesIn(all_numerics()),
                         [](const auto& param_info) { return name_of(param_info.param); });

struct EngineOnce : ::testing::Test {
  std::unique_ptr<Backend> backend_ = make_cpu_backend({1, std::nullopt});
};

// The joint distribution of the first three tokens of `methods`, against the target's exact probs.
// Models, caches and verify are the real ones; only the vocabulary is small.
void expect_targets_joint_distribution(Backend* backend_, const std::vector<Method>& methods,
                                       SpeculationOptions o = toy_options()) {
  constexpr std::int64_t kSmall = 6, kRuns = 12000;
  const ToyPair pair(*backend_, DType::kF32, kSmall);
  o.sampling = {1.5F, 1.0F, 0};
  o.gamma = 3;
  o.inner_gamma = 2;
  o.budget = 48;
  o.draft_budget = 48;
  ToyRun run(*backend_, pair, o, {100, 8, methods});
  const std::vector<Token> prompt = toy_prompt(100, kSmall, 3);
  run.prefill(prompt);

  // Exact probs through a second model over the same full cache.
  LlamaModel model(*backend_, pair.target, 512, 32, 32);
  std::vector<double> joint;
  std::vector<float> probs(kSmall);
  const auto next_probs = [&](std::span<const Token> after) {
    FullCache& cache = run.context.cache(0);
    cache.rewind();
    std::vector<Token> feed = {prompt.back()};
    feed.insert(feed.end(), after.begin(), after.end());
    const TensorView logits = model.forward(feed, cache, Logits::kLast);
    backend_->to_probs(logits, o.sampling, make_view(probs.data(), DType::kF32, {1, kSmall}));
    return std::vector<double>(probs.begin(), probs.end());
  };
  const std::vector<double> first = next_probs({});
  for (Token a = 0; a < kSmall; ++a) {
    const std::vector<double> second = next_probs({{a}});
    for (Token b = 0; b < kSmall; ++b) {
      const std::vector<Token> ab = {a, b};
      const std::vector<double> third = next_probs(ab);
      for (Token c = 0; c < kSmall; ++c)
        joint.push_back(first[static_cast<std::size_t>(a)] * second[static_cast<std::size_t>(b)] *
                        third[static_cast<std::size_t>(c)]);
    }
  }
  run.context.cache(0).rewind();

  for (const Method m : methods) {
    std::vector<std::int64_t> counts(joint.size());
    for (std::int64_t r = 0; r < kRuns; ++r) {
      const auto t = run.generate(m, 3, 1000 + static_cast<std::uint64_t>(r), 0).tokens;
      ++counts[static_cast<std::size_t>((t[0] * kSmall + t[1]) * kSmall + t[2])];
    }
    const ChiSquareResult result = chi_square(to_string(m), joint, counts);
    EXPECT_GE(result.p_value, kAlpha) << to_string(m) << ": statistic " << result.statistic
                                      << " at " << result.degrees << " degrees";
    // The same counts against a distribution that is slightly off must fail.
    std::vector<double> wrong = joint;
    for (std::size_t i = 0; i + 1 < wrong.size(); i += 2) {
      const double moved = 0.3 * wrong[i];
      wrong[i] -= moved;
      wrong[i + 1] += moved;
    }
    EXPECT_LT(chi_square(to_string(m), wrong, counts).p_value, kAlpha) << to_string(m);
  }
}

TEST_F(EngineOnce, JointDistributionIsTheTargets) {
  expect_targets_joint_distribution(backend_.get(), all_methods());
}

TEST_F(EngineOnce, JointDistributionIsTheTargetsWithDenseLayers) {
  SpeculationOptions o = toy_options();
  o.dense_layers = 1;
  expect_targets_joint_distribution(backend_.get(),
                                    {Method::kTriForce, Method::kRetrieval, Method::kStreaming}, o);
}

// Dense layers below, room for all tokens above: the target with its retrieval cache is the target,
// so every token it proposes is accepted, round after round, though drafts of the inner level are
// rejected all the time.
TEST_F(EngineOnce, WithRoomForAllTokensADenseTargetIsNeverRejected) {
  const ModelConfig t = toy_config("t", 3, 4, 2, 16, kVocab),
                    d = toy_config("d", 1, 2, 2, 16, kVocab);
  const ToyPair pair(*backend_, DType::kBF16, t, d);
  for (const int dense : {0, 1, 2}) {
    SpeculationOptions o = toy_options();
    o.budget = 512;
    o.dense_layers = dense;
    o.inner_gamma = 3;
    o.sampling = {1.0F, 1.0F, 0};
    ToyRun run(*backend_, pair, o, {150, 200, all_methods()});
    run.prefill(toy_prompt(150, kVocab, 0));
    for (const Method m : {Method::kTriForce, Method::kRetrieval}) {
      run.generate(Method::kStreaming, 20, 4, 0);  // writes to the same rows
      const RunMetrics r = run.generate(m, 200, 3, 0);
      EXPECT_EQ(r.levels.back().rejected, 0) << to_string(m) << ", dense layers " << dense;
      EXPECT_GT(r.levels.back().accepted, 150);
      const bool has_inner = r.levels.size() > 1;
      EXPECT_TRUE(!has_inner || r.levels.front().rejected > 20);
    }
  }
}

// The same where drafts multiply with copies of the weights in fewer bits: what they propose is
// the target's only nearly, and what is generated is the target's.
TEST_F(EngineOnce, DraftsMultiplyWithTheirOwnWeights) {
  const ModelConfig t = toy_config("t", 3, 4, 2, 16, kVocab),
                    d = toy_config("d", 1, 2, 2, 16, kVocab);
  std::map<Quantisation, std::int64_t> rejected;
  std::set<std::vector<Token>> streams;
  for (const auto by : {Quantisation::kNone, Quantisation::kInt8, Quantisation::kInt4}) {
    const ToyPair pair(*backend_, DType::kBF16, t, d, {}, by);
    SpeculationOptions o = toy_options();
    o.draft_weights = by;
    o.budget = 512;
    o.sampling = {1.0F, 1.0F, 0};
    o.acceptance = Acceptance::kCoupled;
    ToyRun run(*backend_, pair, o, {150, 300, all_methods()});
    run.prefill(toy_prompt(150, kVocab, 0));
    expect_equal_streams(run_all(run, 300, 3, 0), to_string(by));
    rejected[by] = run.generate(Method::kRetrieval, 300, 3, 0).levels.back().rejected;
    streams.insert(run.generate(kBaselineMethod, 300, 3, 0).tokens);
  }
  EXPECT_EQ(streams.size(), 1U) << "the last word is not that of the target's own weights";
  EXPECT_EQ(rejected[Quantisation::kNone], 0);
  EXPECT_GT(rejected[Quantisation::kInt8], 0);
  EXPECT_GT(rejected[Quantisation::kInt4], 2 * rejected[Quantisation::kInt8]);
}

// Selections for each drafted token: analysis of what a draft could see, lossless as any.
TEST_F(EngineOnce, SelectionsForEachTokenAreLossless) {
  const std::vector<Method> methods = {Method::kRetrieval, Method::kDraft};
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  for (const Selection selection : {Selection::kMeanKey, Selection::kAttention}) {
    for (const int dense : {0, 1}) {
      SpeculationOptions o = toy_options();
      o.selection = selection;
      o.rebuild.kind = RebuildPolicy::Kind::kToken;
      o.chunk_size = selection == Selection::kMeanKey ? 8 : 1;
      o.dense_layers = dense;
      o.acceptance = Acceptance::kCoupled;
      ToyRun run(*backend_, pair, o, {203, 90, methods});
      run.prefill(toy_prompt(203, kVocab, 0));
      const std::vector<Token> baseline = run.generate(kBaselineMethod, 90, 5, 0).tokens;
      const RunMetrics r = run.generate(Method::kRetrieval, 90, 5, 0);
      EXPECT_EQ(r.tokens, baseline);
      EXPECT_EQ(run.generate(Method::kRetrieval, 90, 5, 0).origins, r.origins);
      // One for each token that the proposer is fed: those it drafts, and some for the second time.
      EXPECT_GE(r.rebuilds, r.levels[0].drafted);
      EXPECT_GT(run.methods.pass_ms(Pass::kRetrieval, 3, 1), 0);
    }
  }
  SpeculationOptions o = toy_options();
  o.rebuild.kind = RebuildPolicy::Kind::kToken;
  // By landmarks also where the full cache is far: the same chunks, and so the same drafts.
  for (const int rank : {0, 16}) {
    o.key_rank = rank;
    o.outlier_chunks = rank / 16;
    const auto origins_of = [&](const KvHomes& homes) {
      ToyRun run(*backend_, pair, o, {203, 90, methods, homes});
      run.prefill(toy_prompt(203, kVocab, 0));
      return run.generate(Method::kRetrieval, 90, 5, 0).origins;
    };
    EXPECT_EQ(origins_of({}), origins_of(spread_homes(2, 2, 1))) << rank;
  }
  o.key_rank = o.outlier_chunks = 0;
  expect_targets_joint_distribution(backend_.get(), std::vector{Method::kRetrieval}, o);
}

// Wherever the target's heads are, the same tokens are drafted.
TEST_F(EngineOnce, ADrafterIsShownTheSameChunksByFarHeads) {
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  const std::vector<Method> methods = {Method::kDraft, Method::kTriForce};
  SpeculationOptions o = toy_options();
  o.draft_cache = DraftCache::kRetrieval;
  o.selection = Selection::kAttention;
  const auto generated = [&](const SpeculationOptions& options, Method method,
                             const KvHomes& homes) {
    ToyRun run(*backend_, pair, options, {203, 90, methods, homes});
    run.prefill(toy_prompt(203, kVocab, 0));
    return run.generate(method, 90, 5, 0);
  };
  SpeculationOptions streams = o;
  streams.draft_cache = DraftCache::kStreaming;
  for (const Method m : methods) {
    const RunMetrics near = generated(o, m, {});
    EXPECT_EQ(generated(o, m, spread_homes(2, 2, 1)).origins, near.origins) << to_string(m);
    EXPECT_NE(generated(streams, m, {}).origins, near.origins) << to_string(m);
    // The retrieval cache is shown each verification, too.
    EXPECT_EQ(near.rebuilds, m == Method::kTriForce ? near.rounds : 0) << to_string(m);
  }
}

// A prompt in a streaming cache does not change the prompt in the full one.
TEST_F(EngineOnce, TheBaselineDoesNotSeeDenseLayers) {
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  std::vector<std::vector<Token>> baseline;
  for (const int dense : {0, 1}) {
    SpeculationOptions o = toy_options();
    o.dense_layers = dense;
    o.sampling = {1.0F, 1.0F, 0};
    ToyRun run(*backend_, pair, o, {400, 60, all_methods()});
    run.prefill(toy_prompt(400, kVocab, 0));
    run.generate(Method::kStreaming, 60, 3, 0);
    baseline.push_back(run.generate(kBaselineMethod, 60, 3, 0).tokens);
  }
  EXPECT_EQ(baseline[0], baseline[1]);
}

TEST_F(EngineOnce, SyntheticRatesShowInTheCounters) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  SpeculationOptions o = toy_options();
  o.synthetic = SyntheticAcceptance{{0.9}, 0.5};
  ToyRun run(*backend_, pair, o, {100, 1500, all_methods()});
  run.prefill(toy_prompt(100, kVocab, 0));
  const RunMetrics m = run.generate(Method::kTriForce, 1500, 3, 0);
  ASSERT_EQ(m.levels.size(), 2U);
  const double rates[] = {0.5, 0.9};
  for (std::size_t l = 0; l < 2; ++l) {
    const auto tested = static_cast<double>(m.levels[l].accepted + m.levels[l].rejected);
    const double sigma = std::sqrt(rates[l] * (1 - rates[l]) / tested);
    EXPECT_NEAR(m.levels[l].acceptance_rate(), rates[l], 5 * sigma) << m.levels[l].name;
  }
  // One level: of the drafter's proposals, and of the target's.
  for (const auto& [method, rate] : {std::pair{Method::kDraft, 0.5}, {Method::kRetrieval, 0.9}}) {
    const RunMetrics one = run.generate(method, 1500, 3, 0);
    ASSERT_EQ(one.levels.size(), 1U);
    const auto tested = static_cast<double>(one.levels[0].accepted + one.levels[0].rejected);
    const double sigma = std::sqrt(rate * (1 - rate) / tested);
    EXPECT_NEAR(one.levels[0].acceptance_rate(), rate, 5 * sigma) << to_string(method);
  }
}

TEST_F(EngineOnce, EveryMethodStopsAtTheSameEos) {
  const ToyPair pair(*backend_, DType::kF32, 7);  // small: the end comes soon
  SpeculationOptions o = toy_options();
  o.ignore_eos = false;
  o.acceptance = Acceptance::kCoupled;
  o.sampling = {2.0F, 1.0F, 0};
  ToyRun run(*backend_, pair, o, {64, 200, all_methods()});
  run.prefill(toy_prompt(64, 7, 1));
  const Streams s = run_all(run, 200, 4, 0);
  expect_equal_streams(s, "EOS");
  for (const auto& [method, metrics] : s.by_method) {
    EXPECT_TRUE(metrics.stopped_at_eos) << to_string(method);
    EXPECT_EQ(metrics.tokens.back(), 2) << to_string(method);
    EXPECT_EQ(std::count(metrics.tokens.begin(), metrics.tokens.end(), 2), 1) << to_string(method);
  }
}

TEST_F(EngineOnce, ReportsWhoProducedEachToken) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  ToyRun run(*backend_, pair, toy_options(), {100, 200, all_methods()});
  run.prefill(toy_prompt(100, kVocab, 0));
  std::vector<Token> streamed;
  const RunMetrics m =
      run.generate(Method::kTriForce, 200, 3, 0,
                   [&](int lane, std::span<const Token> t, std::span<const std::uint8_t> o) {
                     EXPECT_EQ(lane, 0);
                     EXPECT_EQ(t.size(), o.size());
                     streamed.insert(streamed.end(), t.begin(), t.end());
                   });
  EXPECT_EQ(streamed, m.tokens);
  ASSERT_EQ(m.origins.size(), m.tokens.size());
  const auto by_outer = std::count(m.origins.begin(), m.origins.end(), 2);
  EXPECT_LE(by_outer, m.rounds);  // one a round, and the last may be cut off
  EXPECT_GE(by_outer, m.rounds - 1);
  EXPECT_EQ(m.levels[1].rounds, m.rounds);
}

TEST_F(EngineOnce, AStopRequestEndsARunWithWhatItHas) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  ToyRun run(*backend_, pair, toy_options(), {100, 200, all_methods()});
  run.prefill(toy_prompt(100, kVocab, 0));
  bool stop = false;
  const RunMetrics m = run.generate(
      kBaselineMethod, 200, 3, 0,
      [&](int, std::span<const Token>, std::span<const std::uint8_t>) { stop = true; },
      [&] { return stop; });
  EXPECT_TRUE(m.interrupted);
  EXPECT_EQ(m.tokens.size(), 1U);
  EXPECT_FALSE(run.prefill(toy_prompt(100, kVocab, 0), [&] { return stop; }));
  EXPECT_TRUE(run.context.prompt(0).empty());
}

// Poisons the logits of one position; the run ends there, not with a token.
TEST_F(EngineOnce, NonFiniteLogitsEndTheRun) {
  class Poison final : public ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    void do_to_probs(std::span<const ProbsRequest> requests,
                     const SamplingParams& params) override {
      if (++calls_ == 9) requests.front().logits.as<float>()[5] = INFINITY;
      ForwardingBackend::do_to_probs(requests, params);
    }

   private:
    int calls_ = 0;
  };
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  for (const Method m : {Method::kAutoregressive, Method::kTriForce}) {
    Poison poison(*backend_);
    ToyRun run(poison, pair, toy_options(), {100, 50, all_methods()});
    run.prefill(toy_prompt(100, kVocab, 0));
    const RunMetrics r = run.generate(m, 50, 1, 0);
    ASSERT_TRUE(r.failed_at) << to_string(m) << " went on";
    EXPECT_GE(*r.failed_at, 100 + std::ssize(r.tokens));
    EXPECT_LT(r.tokens.size(), 9U);
  }
}

// A drafter reads its window anew, and what it says is what a model says that never saw more.
TEST_F(EngineOnce, AWindowIsATextOfItsOwn) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  for (Backend* b : {backend_.get(), reference.get()}) {
    const ToyPair pair(*b, DType::kF32, kVocab);
    const ModelConfig& d = pair.draft.config;
    // No token follows itself: a second one would change nothing.
    std::vector<Token> tokens(260);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(7 * i % kVocab);
    constexpr std::int64_t kLength = 220;
    for (const std::int64_t window : {1, 2, 31, 128, 150, 250}) {
      LlamaModel model(*b, pair.draft, 512, kStreamingChunk, kMaxBatchInvariantRows);
      StreamingCache cache(*b, d.layers, d.kv_heads, d.head_dim, window, kStreamingChunk,
                           pair.draft.dtype);
      PhaseTimer timer(*b);
      const LaneCache lane{&cache, nullptr};
      WindowScorer scorer(*b, model, {&lane, 1}, window, 400, {1.0F, 1.0F, 0}, timer,
                          phase_of(Pass::kDraft));
      scorer.start(0, std::span(tokens).first(kLength));
      Tensor got(b->allocator(), DType::kF32, {2, kVocab}, b->place(), MemTag::kProbs);
      const auto feed = [&](std::int64_t from, std::size_t n) {
        const LaneFeed f{0, std::span(tokens).subspan(static_cast<std::size_t>(from), n),
                         got.view()};
        scorer.feed({&f, 1});
      };
      feed(kLength, 20);
      scorer.truncate(0, kLength + 5);  // rejected, and others in their place
      feed(kLength + 5, 15);
      ASSERT_EQ(scorer.length(0), kLength + 20);
      // In single-token passes over a full cache of nothing but the window, or of one token more.
      const auto alone = [&](std::int64_t end, std::int64_t n) {
        FullCache fresh(*b, d.layers, d.kv_heads, d.head_dim, 512, 1, pair.draft.dtype);
        TensorView logits;
        for (std::int64_t i = end - n; i < end; ++i) {
          logits = model.forward({&tokens[static_cast<std::size_t>(i)], 1}, fresh, Logits::kLast);
        }
        std::vector<float> probs(kVocab);
        b->to_probs(logits, {1.0F, 1.0F, 0}, make_view(probs.data(), DType::kF32, {1, kVocab}));
        return probs;
      };
      // Roundings of f32, of sums of some hundred terms: there the keys are rotated when stored.
      const auto differs = [](const std::vector<float>& x, const std::vector<float>& y) {
        double most = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
          most = std::max(most, std::abs(double{x[i]} / double{y[i]} - 1));
        }
        return most > 0x1p-16;
      };
      for (const std::int64_t row : {0, 1}) {
        const std::int64_t end = kLength + 19 + row, n = std::min(window, end);
        std::vector<float> probs(kVocab);
        b->download(make_view(probs.data(), DType::kF32, {1, kVocab}), got.view().rows(row, 1));
        EXPECT_FALSE(differs(probs, alone(end, n))) << window << ", row " << row;
        EXPECT_TRUE(n == end || differs(probs, alone(end, n + 1))) << window << ", row " << row;
      }
    }
  }
}

TEST_F(EngineOnce, JointDistributionIsTheTargetsWithOtherCachesOfTheDrafter) {
  for (const DraftCache cache : {DraftCache::kWindow, DraftCache::kRetrieval}) {
    SpeculationOptions o = toy_options();
    o.draft_cache = cache;
    expect_targets_joint_distribution(backend_.get(), {Method::kDraft, Method::kTriForce}, o);
  }
}

// Of the drafter beyond what it has, and not of one that has room.
TEST_F(EngineOnce, ADrafterBeyondItsPositionsIsNoted) {
  const ModelConfig d = toy_config("d", 1, 2, 2, 16, kVocab);  // 4096 positions
  SpeculationOptions o = toy_options();
  const RunShape run{6000, 100, {Method::kDraft}};
  EXPECT_EQ(note_on_drafter(d, o, run), "");
  o.draft_budget = 4096 - kStreamingChunk;
  EXPECT_EQ(note_on_drafter(d, o, run), "");
  o.draft_budget += 1;
  EXPECT_NE(note_on_drafter(d, o, run).find("up to 4097 positions, of which d has 4096"),
            std::string::npos);
  EXPECT_EQ(note_on_drafter(d, o, {1000, 100, {Method::kDraft}}), "");  // it never gets so far
  o.draft_cache = DraftCache::kWindow;
  EXPECT_EQ(note_on_drafter(d, o, run), "");
  o.draft_budget = 4097;
  EXPECT_NE(note_on_drafter(d, o, run), "");
}

// The positions that target_positions() says are those that are read: no token is fed beyond them,
// and drafters that are always right get to the last one.
TEST_F(EngineOnce, TheLastGeneratedTokenIsNotFed) {
  class Positions final : public ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    void do_rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                        std::span<const KvView> sequences) override {
      const auto* at = positions.as<std::int32_t>();
      read_ = std::max<std::int64_t>(read_, 1 + *std::max_element(at, at + positions.shape[0]));
      ForwardingBackend::do_rope_append(qkv, positions, rope, q, sequences);
    }
    std::int64_t read_ = 0;
  };
  constexpr std::int64_t kPrompt = 100, kCount = 40;
  const ToyPair unlike(*backend_, DType::kF32, kVocab);
  ToyPair same(*backend_, DType::kF32, kVocab);
  same.draft = random_weights(*backend_, same.target.config, DType::kF32, 11, MemTag::kDraftWeights,
                              nullptr);
  SpeculationOptions o = toy_options();
  o.sampling = {0.0F, 1.0F, 0};
  o.budget = o.draft_budget = 256;  // small caches hold all
  std::vector<Method> methods = all_methods();
  methods.push_back(kBaselineMethod);
  for (const ToyPair* pair : std::initializer_list<const ToyPair*>{&unlike, &same}) {
    // Whole drafts of the inner level fill all but one of the outer level's, but for the last.
    for (const Gammas g : {Gammas{1, 1}, {7, 1}, {9, 7}, {31, 31}}) {
      o.gamma = g.gamma;
      o.inner_gamma = g.inner_gamma;
      for (const Method m : methods) {
        SCOPED_TRACE(fmt::format("{}, gamma {} and {}", to_string(m), g.gamma, g.inner_gamma));
        Positions backend(*backend_);
        ToyRun run(backend, *pair, o, {kPrompt, kCount, {m}});
        run.prefill(toy_prompt(kPrompt, kVocab, 0));
        bool reached = false;
        for (std::int64_t n = 1; n <= kCount; ++n) {
          backend.read_ = 0;
          run.generate(m, n, 1, 0);
          const std::int64_t positions = target_positions(o, {kPrompt, n, {m}});
          EXPECT_LE(backend.read_, positions) << n;
          reached = reached || backend.read_ == positions;
        }
        const bool may_be_less = pair == &unlike || g.gamma == 31 || spec_of(m).looks_up() ||
                                 spec_of(m).uses(Pass::kQuantised);
        EXPECT_TRUE(reached || may_be_less);
      }
    }
  }
}

// Up to the last position that a model has: the streams are those of a run with room to spare.
TEST_F(EngineOnce, TheLastPositionsCanBeUsed) {
  const ToyPair roomy(*backend_, DType::kF32, kVocab);
  ModelConfig tight = roomy.target.config;
  tight.max_position = 100 + 40 - 1 + 7;
  const ToyPair pair(*backend_, DType::kF32, tight, roomy.draft.config);
  std::vector<Streams> streams;
  for (const ToyPair* p : {&roomy, &pair}) {
    ToyRun run(*backend_, *p, toy_options(), {100, 40, all_methods()});
    run.prefill(toy_prompt(100, kVocab, 0));
    streams.push_back(run_all(run, 40, 5, 0));
  }
  for (const auto& [method, metrics] : streams[0].by_method)
    EXPECT_EQ(metrics.tokens, streams[1].of(method).tokens) << to_string(method);
}

// A gamma of 0 draws from the verifier's own pass; what is below is not asked.
TEST_F(EngineOnce, GammasOfZeroAreTheVerifiersOwnPasses) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  for (const Variant& v : variants()) {
    if (v.options.tree || v.options.inner_tree) continue;  // gammas do not change them
    ToyRun run(*backend_, pair, v.options, {150, 60, all_methods()});
    run.prefill(toy_prompt(150, kVocab, 0));
    for (const Gammas gammas : {Gammas{0, 0}, {0, 1}, {1, 0}}) {
      const Gammas allowed{std::min(gammas.gamma, v.options.gamma),
                           std::min(gammas.inner_gamma, v.options.inner_gamma)};
      run.methods.set_gammas(allowed);
      const Streams streams = run_all(run, 60, 3, 0);
      expect_equal_streams(
          streams, fmt::format("{}, gammas {} {}", v.name, allowed.gamma, allowed.inner_gamma));
      const RunMetrics& m = streams.of(Method::kTriForce);
      EXPECT_EQ(m.levels[1].drafted > 0, allowed.gamma > 0);
      EXPECT_EQ(m.levels[0].drafted > 0, allowed.gamma > 0 && allowed.inner_gamma > 0);
      EXPECT_EQ(m.phase_ms[static_cast<std::size_t>(phase_of(Pass::kDraft))] > 0,
                allowed.gamma > 0 && allowed.inner_gamma > 0);
    }
  }
}

// Another budget, smaller and larger again, gives what methods constructed with it give.
TEST_F(EngineOnce, ABudgetThatIsSetIsThatOfItsOwnMethods) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  SpeculationOptions o = toy_options();
  o.least_budget = 64;
  o.budget = 128;
  ToyRun run(*backend_, pair, o, {150, 60, all_methods()});
  run.prefill(toy_prompt(150, kVocab, 0));
  for (const std::int64_t budget : {64, 128, 96}) {
    SpeculationOptions own = toy_options();
    own.budget = budget;
    ToyRun expected(*backend_, pair, own, {150, 60, all_methods()});
    expected.prefill(toy_prompt(150, kVocab, 0));
    run.methods.set_budget(budget);
    run.methods.prefill_methods({}, {});
    const Streams got = run_all(run, 60, 5, 0), want = run_all(expected, 60, 5, 0);
    for (const auto& [method, metrics] : want.by_method) {
      EXPECT_EQ(metrics.tokens, got.of(method).tokens) << to_string(method);
      EXPECT_EQ(metrics.origins, got.of(method).origins) << to_string(method);
    }
    EXPECT_EQ(run.methods.retrieval_cache(0)->selected_chunks(),
              expected.methods.retrieval_cache(0)->selected_chunks());
  }
}

// One prefill serves several sets of methods, one after the other and side by side; each gives what
// it gives alone.
TEST_F(EngineOnce, MethodsShareAContext) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  const RunShape shape{100, 40, all_methods()};
  SpeculationOptions small = toy_options(), large = toy_options();
  large.budget = 88;
  large.gamma = 11;
  large.selection = Selection::kAttention;
  large.sampling = {1.2F, 1.0F, 0};
  const std::vector<Token> prompt = toy_prompt(100, kVocab, 0);
  const auto alone = [&](const SpeculationOptions& o) {
    ToyRun run(*backend_, pair, o, shape);
    run.prefill(prompt);
    return run_all(run, 40, 5, 0);
  };
  const auto context = std::make_shared<Context>(*backend_, pair.target, Context::shape_of(shape));
  ASSERT_TRUE(context->prefill(prompts_of({prompt}), {}, {}));
  Methods first(context, &pair.draft, small, shape.methods);
  first.prefill_methods({}, {});
  const Streams expected_small = alone(small), expected_large = alone(large);
  for (int i = 0; i < 2; ++i) {
    Methods second(context, &pair.draft, large, shape.methods);
    second.prefill_methods({}, {});
    for (const auto& [method, expected] : expected_small.by_method) {
      const RunMetrics a = first.generate(method, 40, 5, 0, {}, {}).front();
      const RunMetrics b = second.generate(method, 40, 5, 0, {}, {}).front();
      EXPECT_EQ(a.tokens, expected.tokens) << to_string(method);
      EXPECT_EQ(a.origins, expected.origins) << to_string(method);
      EXPECT_EQ(b.tokens, expected_large.of(method).tokens) << to_string(method);
      EXPECT_EQ(b.origins, expected_large.of(method).origins) << to_string(method);
    }
  }
}

// The baseline's first token is drawn from what probs_after_prompt(0) says; asking changes nothing.
TEST_F(EngineOnce, ProbsAfterThePromptAreTheTargets) {
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  SpeculationOptions o = toy_options();
  o.sampling = {0.8F, 0.95F, 20};
  ToyRun run(*backend_, pair, o, {150, 12, all_methods()});
  const std::vector<Token> prompt = toy_prompt(150, kVocab, 0);
  run.prefill(prompt);
  std::map<Method, std::vector<Token>> before;
  for (const Method m : all_methods()) before[m] = run.generate(m, 12, 5, 0).tokens;

  const std::vector<float> probs = run.methods.probs_after_prompt(0);
  LlamaModel model(*backend_, pair.target, 512, 32, 32);
  FullCache& cache = run.context.cache(0);
  const TensorView logits = model.forward({&prompt.back(), 1}, cache, Logits::kLast);
  std::vector<float> expected(kVocab);
  backend_->to_probs(logits, o.sampling, make_view(expected.data(), DType::kF32, {1, kVocab}));
  cache.rewind();
  EXPECT_EQ(probs, expected);
  EXPECT_EQ(run.methods.probs_after_prompt(0), expected);
  for (const Method m : all_methods())
    EXPECT_EQ(run.generate(m, 12, 5, 0).tokens, before[m]) << to_string(m);
}

}  // namespace
}  // namespace triforce
