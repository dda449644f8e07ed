#include "triforce/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/forwarding_backend.h"
#include "cpu/cpu_backend.h"
#include "decode/lossless.h"
#include "decode/toy_models.h"
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
  for (int i = 0; i <= static_cast<int>(cpu::best_isa()); ++i)
    all.push_back({static_cast<cpu::Isa>(i), DType::kBF16});
  all.push_back({cpu::best_isa(), DType::kF32});
  all.push_back({cpu::best_isa(), DType::kF16});
  return all;
}

std::string name_of(const Numerics& n) {
  std::string name = std::string(cpu::to_string(n.isa)) + "_" + to_string(n.dtype);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class EngineTest : public ::testing::TestWithParam<Numerics> {
 protected:
  std::unique_ptr<Backend> backend_ = make_cpu_backend({1, GetParam().isa});
};

// DESIGN section 4.2: greedy and coupled streams equal the baseline's token for token.
TEST_P(EngineTest, StreamsEqualTheBaselineTokenForToken) {
  const ToyPair pair(*backend_, GetParam().dtype, kVocab);
  for (const Variant& v : variants()) {
    Engine engine(*backend_, pair.target, &pair.draft, v.options, {203, 90, all_methods()});
    for (std::uint32_t prompt = 0; prompt < 2; ++prompt) {
      engine.prefill(toy_prompt(prompt == 0 ? 203 : 130, kVocab, prompt), nullptr);
      expect_equal_streams(run_all(engine, 90, prompt + 1, prompt),
                           v.name + ", prompt " + std::to_string(prompt));
    }
  }
}

TEST_P(EngineTest, RewindingGivesTheSameRunAgain) {
  const ToyPair pair(*backend_, GetParam().dtype, kVocab);
  SpeculationOptions o = toy_options();
  o.rebuild = {RebuildPolicy::Kind::kEvery, 8, 0};
  Engine engine(*backend_, pair.target, &pair.draft, o, {150, 60, all_methods()});
  engine.prefill(toy_prompt(150, kVocab, 0), nullptr);
  const Streams first = run_all(engine, 60, 5, 0), second = run_all(engine, 60, 5, 0);
  for (const auto& [method, run] : first.by_method) {
    EXPECT_EQ(run.tokens, second.of(method).tokens) << to_string(method);
    EXPECT_EQ(run.origins, second.of(method).origins) << to_string(method);
  }
  EXPECT_GT(first.of(Method::kTriForce).rebuilds, 0);
}

INSTANTIATE_TEST_SUITE_P(Numerics, EngineTest, ::testing::ValuesIn(all_numerics()),
                         [](const auto& param_info) { return name_of(param_info.param); });

struct EngineOnce : ::testing::Test {
  std::unique_ptr<Backend> backend_ = make_cpu_backend({1, std::nullopt});
};

// The joint law of the first three tokens of every method, against the target's exact laws. Models,
// caches and judge are the real ones; only the vocabulary is small.
TEST_F(EngineOnce, JointLawIsTheTargets) {
  constexpr std::int64_t kSmall = 6, kRuns = 12000;
  const ToyPair pair(*backend_, DType::kF32, kSmall);
  SpeculationOptions o = toy_options();
  o.law = {1.5F, 1.0F, 0};
  o.gamma = 3;
  o.inner_gamma = 2;
  o.budget = 48;
  o.draft_budget = 48;
  Engine engine(*backend_, pair.target, &pair.draft, o, {100, 8, all_methods()});
  const std::vector<Token> prompt = toy_prompt(100, kSmall, 3);
  engine.prefill(prompt, nullptr);

  // Exact laws through a second model over the same full cache.
  LlamaModel model(*backend_, pair.target, 32, 32);
  std::vector<double> joint;
  std::vector<float> law(kSmall);
  const auto next_law = [&](std::span<const Token> after) {
    FullCache& cache = engine.full_cache();
    cache.rewind();
    std::vector<Token> feed = {prompt.back()};
    feed.insert(feed.end(), after.begin(), after.end());
    const TensorView logits = model.forward(feed, cache, Logits::kLast);
    backend_->to_laws(logits, o.law, make_view(law.data(), DType::kF32, {1, kSmall}));
    return std::vector<double>(law.begin(), law.end());
  };
  const std::vector<double> first = next_law({});
  for (Token a = 0; a < kSmall; ++a) {
    const std::vector<double> second = next_law({{a}});
    for (Token b = 0; b < kSmall; ++b) {
      const std::vector<Token> ab = {a, b};
      const std::vector<double> third = next_law(ab);
      for (Token c = 0; c < kSmall; ++c)
        joint.push_back(first[static_cast<std::size_t>(a)] * second[static_cast<std::size_t>(b)] *
                        third[static_cast<std::size_t>(c)]);
    }
  }
  engine.full_cache().rewind();

  for (const Method m : all_methods()) {
    std::vector<std::int64_t> counts(joint.size());
    for (std::int64_t r = 0; r < kRuns; ++r) {
      const auto t = engine.generate(m, 3, 1000 + static_cast<std::uint64_t>(r), 0, nullptr).tokens;
      ++counts[static_cast<std::size_t>((t[0] * kSmall + t[1]) * kSmall + t[2])];
    }
    const ChiSquareResult result = chi_square(to_string(m), joint, counts);
    EXPECT_GE(result.p_value, kAlpha) << to_string(m) << ": statistic " << result.statistic
                                      << " at " << result.degrees << " degrees";
    // The same counts against a law that is slightly off must fail.
    std::vector<double> wrong = joint;
    for (std::size_t i = 0; i + 1 < wrong.size(); i += 2) {
      const double moved = 0.3 * wrong[i];
      wrong[i] -= moved;
      wrong[i + 1] += moved;
    }
    EXPECT_LT(chi_square(to_string(m), wrong, counts).p_value, kAlpha) << to_string(m);
  }
}

TEST_F(EngineOnce, SyntheticRatesShowInTheCounters) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  SpeculationOptions o = toy_options();
  o.synthetic = SyntheticAcceptance{0.9, 0.5};
  Engine engine(*backend_, pair.target, &pair.draft, o, {100, 1500, all_methods()});
  engine.prefill(toy_prompt(100, kVocab, 0), nullptr);
  const RunMetrics m = engine.generate(Method::kTriForce, 1500, 3, 0, nullptr);
  ASSERT_EQ(m.levels.size(), 2U);
  const double rates[] = {0.5, 0.9};
  for (std::size_t l = 0; l < 2; ++l) {
    const auto tested = static_cast<double>(m.levels[l].accepted + m.levels[l].rejected);
    const double sigma = std::sqrt(rates[l] * (1 - rates[l]) / tested);
    EXPECT_NEAR(m.levels[l].acceptance_rate(), rates[l], 5 * sigma) << m.levels[l].name;
  }
}

TEST_F(EngineOnce, EveryMethodStopsAtTheSameEos) {
  const ToyPair pair(*backend_, DType::kF32, 7);  // small: the end comes soon
  SpeculationOptions o = toy_options();
  o.ignore_eos = false;
  o.acceptance = Acceptance::kCoupled;
  o.law = {2.0F, 1.0F, 0};
  Engine engine(*backend_, pair.target, &pair.draft, o, {64, 200, all_methods()});
  engine.prefill(toy_prompt(64, 7, 1), nullptr);
  const Streams s = run_all(engine, 200, 4, 0);
  expect_equal_streams(s, "EOS");
  for (const auto& [method, run] : s.by_method) {
    EXPECT_TRUE(run.stopped_at_eos) << to_string(method);
    EXPECT_EQ(run.tokens.back(), 2) << to_string(method);
    EXPECT_EQ(std::count(run.tokens.begin(), run.tokens.end(), 2), 1) << to_string(method);
  }
}

TEST_F(EngineOnce, ReportsWhoProducedEachToken) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  Engine engine(*backend_, pair.target, &pair.draft, toy_options(), {100, 200, all_methods()});
  engine.prefill(toy_prompt(100, kVocab, 0), nullptr);
  std::vector<Token> streamed;
  const RunMetrics m = engine.generate(
      Method::kTriForce, 200, 3, 0, [&](std::span<const Token> t, std::span<const std::uint8_t> o) {
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

TEST_F(EngineOnce, StopFlagEndsARunWithWhatItHas) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  Engine engine(*backend_, pair.target, &pair.draft, toy_options(), {100, 200, all_methods()});
  engine.prefill(toy_prompt(100, kVocab, 0), nullptr);
  const RunMetrics m = engine.generate(
      Method::kAutoregressive, 200, 3, 0,
      [&](std::span<const Token>, std::span<const std::uint8_t>) { engine.stop_flag() = true; });
  EXPECT_TRUE(m.interrupted);
  EXPECT_EQ(m.tokens.size(), 1U);
  EXPECT_TRUE(engine.prefill(toy_prompt(100, kVocab, 0), nullptr).interrupted);
}

// Poisons the logits of one position; the run must end with a numeric error, not with a token.
TEST_F(EngineOnce, NonFiniteLogitsEndTheRun) {
  class Poison final : public ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    void to_laws(TensorView logits, const LawParams& params, TensorView laws) override {
      if (++calls_ == 9) logits.as<float>()[5] = INFINITY;
      ForwardingBackend::to_laws(logits, params, laws);
    }

   private:
    int calls_ = 0;
  };
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  for (const Method m : {Method::kAutoregressive, Method::kTriForce}) {
    Poison poison(*backend_);
    Engine engine(poison, pair.target, &pair.draft, toy_options(), {100, 50, all_methods()});
    engine.prefill(toy_prompt(100, kVocab, 0), nullptr);
    try {
      engine.generate(m, 50, 1, 0, nullptr);
      ADD_FAILURE() << to_string(m) << " went on";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kNumeric) << e.what();
    }
  }
}

TEST_F(EngineOnce, OptionsThatDoNotFitAreUsageErrors) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  const auto refused = [&](const auto& change) {
    SpeculationOptions o = toy_options();
    Engine::Shape shape{100, 20, all_methods()};
    change(o, shape);
    try {
      const Engine engine(*backend_, pair.target, &pair.draft, o, shape);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage) << e.what();
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refused([](auto&, auto&) {}));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.gamma = 0; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.gamma = 32; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.inner_gamma = 32; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.budget = 68; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.budget = 32; }));
  EXPECT_TRUE(refused([](auto& o, auto&) { o.draft_budget = 32; }));
  EXPECT_TRUE(refused([](auto&, auto& s) { s.max_prompt = 5000; }));  // max_position 4096
}

// The plan is what the engine allocates, tag by tag.
TEST_F(EngineOnce, LedgerEqualsThePlan) {
  const ModelConfig tc = toy_config("t", 2, 4, 2, 32, 131), dc = toy_config("d", 1, 2, 2, 32, 131);
  PlanInput in;
  in.target = tc;
  in.draft = dc;
  in.dtype = DType::kBF16;
  in.backend = backend_.get();
  in.options = toy_options();
  in.shape = {300, 40, all_methods()};
  const MemoryPlan plan = plan_memory(in);
  const ModelWeights t =
      random_weights(*backend_, tc, in.dtype, Engine::target_positions(in.options, in.shape), 1,
                     MemTag::kTargetWeights, nullptr);
  const ModelWeights d =
      random_weights(*backend_, dc, in.dtype, Engine::draft_positions(in.options), 1,
                     MemTag::kDraftWeights, nullptr);
  const Engine engine(*backend_, t, &d, in.options, in.shape);
  for (int i = 0; i < static_cast<int>(MemTag::kCount); ++i) {
    const auto tag = static_cast<MemTag>(i);
    if (tag == MemTag::kWorkspace) continue;
    EXPECT_EQ(backend_->allocator().ledger(tag).live_bytes, plan.bytes[static_cast<std::size_t>(i)])
        << to_string(tag);
  }
}

}  // namespace
}  // namespace triforce
