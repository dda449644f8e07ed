#include "decode/lanes.h"

#include <gtest/gtest.h>

#include "core/forwarding_backend.h"
#include "cpu/cpu_backend.h"
#include "decode/lane_passes.h"
#include "triforce/plan.h"

namespace triforce {
namespace {

constexpr std::int64_t kVocab = 61;

RunShape shape_of(int lanes, std::int64_t count) {
  RunShape s{150, count, all_methods()};
  s.lanes = lanes;
  return s;
}

class Lanes : public ::testing::TestWithParam<cpu::Isa> {
 protected:
  std::unique_ptr<Backend> backend_ = make_cpu_backend({1, GetParam()});
};

// Whatever is drafted, verified, selected and kept, of lanes that end at different times.
TEST_P(Lanes, EachGetsWhatItGetsAlone) {
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  std::vector<Variant> all = variants();
  all.push_back({"speculative T 0.6", toy_options()});
  all.back().options.sampling = {0.6F, 1.0F, 0};
  for (Variant& v : all) {
    v.options.ignore_eos = false;
    expect_lanes_as_alone(*backend_, pair, v.options, shape_of(3, 40), v.name);
  }
}

INSTANTIATE_TEST_SUITE_P(, Lanes, ::testing::ValuesIn(cpu::usable_isas()), [](const auto& param) {
  std::string name = to_string(param.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

class LanesOnce : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = make_cpu_backend({2, std::nullopt});
};

TEST_F(LanesOnce, AnyNumberOfThem) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  SpeculationOptions o = toy_options();
  o.sampling = {0.6F, 1.0F, 0};
  for (const int lanes : {1, 2, 4, 5, 6}) {
    expect_lanes_as_alone(*backend_, pair, o, shape_of(lanes, 50), fmt::format("{} lanes", lanes));
  }
}

TEST_F(LanesOnce, WithHeadsInHostMemory) {
  const ToyPair pair(*backend_, DType::kBF16, kVocab);
  for (const int host_split : {0, 1}) {
    RunShape shape = shape_of(3, 30);
    shape.homes = spread_homes(2, 2, 1, host_split);
    expect_lanes_as_alone(*backend_, pair, toy_options(), shape, fmt::format("{}", host_split));
  }
}

// The recovery of a lane is measured beside those of others, and is its own.
TEST_F(LanesOnce, RecoveryIsOfEach) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  SpeculationOptions o = toy_options();
  o.measure_recovery = true;
  const auto prompts = toy_prompts(3, 150, kVocab);
  RunShape shape = shape_of(3, 30);
  ToyRun together(*backend_, pair, o, shape);
  ASSERT_TRUE(together.prefill_lanes(prompts));
  const auto found = together.methods.generate(Method::kRetrieval, 30, 5, 0, {}, {});
  shape.lanes = 1;
  ToyRun alone(*backend_, pair, o, shape);
  for (std::uint32_t l = 0; l < 3; ++l) {
    ASSERT_TRUE(alone.prefill(prompts[l]));
    ASSERT_TRUE(found[l].recovery);
    expect_equal_runs(found[l], alone.generate(Method::kRetrieval, 30, 5, l), fmt::format("{}", l));
  }
}

// Where all lanes select, one call gives the mass of each.
TEST_F(LanesOnce, MassIsTakenOfAllAtOnce) {
  class Watched final : public ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    void do_attention(TensorView q, std::span<const KvView> sequences, const RopeView& rope,
                      TensorView out, std::span<const TensorView> mass, int chunk,
                      RowPath path) override {
      most = std::max(most, mass.size());
      ForwardingBackend::do_attention(q, sequences, rope, out, mass, chunk, path);
    }
    std::size_t most = 0;
  };
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  SpeculationOptions o = toy_options();
  o.selection = Selection::kH2O;
  Watched watched(*backend_);
  ToyRun run(watched, pair, o, shape_of(3, 40));
  ASSERT_TRUE(run.prefill_lanes(toy_prompts(3, 150, kVocab)));
  run.methods.generate(Method::kRetrieval, 40, 1, 0, {}, {});
  EXPECT_EQ(watched.most, 3U);
}

// Poisons the probabilities of one lane at some moment: it alone ends there, and says so.
TEST_F(LanesOnce, OneThatFailsEndsAlone) {
  class Poison final : public ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    void do_to_probs(std::span<const ProbsRequest> requests,
                     const SamplingParams& params) override {
      for (const ProbsRequest& r : requests) {
        if (++made == poisoned) r.logits.as<float>()[5] = INFINITY;
      }
      ForwardingBackend::do_to_probs(requests, params);
    }
    int made = 0, poisoned = 0;  // of lanes
  };
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  const RunShape shape = shape_of(3, 40);
  const auto prompts = toy_prompts(3, 150, kVocab);
  std::set<std::size_t> failed_lanes;
  for (const Method m : {kBaselineMethod, Method::kDraft, Method::kTriForce}) {
    ToyRun whole(*backend_, pair, toy_options(), shape);
    whole.prefill_lanes(prompts);
    const auto expected = whole.methods.generate(m, 40, 1, 0, {}, {});
    for (const int poisoned : {4, 11, 15, 26}) {
      Poison poison(*backend_);
      ToyRun run(poison, pair, toy_options(), shape);
      run.prefill_lanes(prompts);
      poison.poisoned = poison.made + poisoned;
      const auto found = run.methods.generate(m, 40, 1, 0, {}, {});
      std::size_t failed = 0;
      for (std::size_t l = 0; l < 3; ++l) {
        const std::vector<Token>& tokens = found[l].tokens;
        const auto n = static_cast<std::ptrdiff_t>(tokens.size());
        ASSERT_LE(n, std::ssize(expected[l].tokens));
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected[l].tokens.begin()));
        if (!found[l].failed_at) {
          EXPECT_EQ(n, 40);
          continue;
        }
        ++failed;
        failed_lanes.insert(l);
        EXPECT_GE(*found[l].failed_at, std::ssize(prompts[l]) + n);
        EXPECT_LT(n, 40);
      }
      EXPECT_EQ(failed, 1U) << to_string(m) << ", " << poisoned;
    }
  }
  EXPECT_EQ(failed_lanes.size(), 3U);
}

TEST_F(LanesOnce, ABatchEndsWhereAStopIsRequested) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  ToyRun run(*backend_, pair, toy_options(), shape_of(3, 200));
  ASSERT_TRUE(run.prefill_lanes(toy_prompts(3, 150, kVocab)));
  std::vector<std::size_t> seen(3);
  const auto on_tokens = [&](int lane, std::span<const Token> tokens, auto&&) {
    seen[static_cast<std::size_t>(lane)] += tokens.size();
  };
  const auto found =
      run.methods.generate(Method::kTriForce, 200, 1, 0, on_tokens, [&] { return seen[2] > 20; });
  for (std::size_t l = 0; l < 3; ++l) {
    EXPECT_TRUE(found[l].interrupted);
    EXPECT_EQ(found[l].tokens.size(), seen[l]);
  }
  bool stop = false;
  EXPECT_FALSE(run.context.prefill(
      prompts_of(toy_prompts(3, 150, kVocab)),
      [&](Pass, std::int64_t done, std::int64_t) { stop = done > 160; }, [&] { return stop; }));
  for (int l = 0; l < 3; ++l) EXPECT_TRUE(run.context.prompt(l).empty());
}

// Times are from the common begin to each lane's end, and phases are all of them.
TEST_F(LanesOnce, TimesOfALaneEndWithIt) {
  const ToyPair pair(*backend_, DType::kF32, kVocab);
  SpeculationOptions o = toy_options();
  o.ignore_eos = false;
  ToyRun run(*backend_, pair, o, shape_of(6, 60));
  ASSERT_TRUE(run.prefill_lanes(toy_prompts(6, 150, kVocab)));
  const auto found = run.methods.generate(kBaselineMethod, 60, 3, 0, {}, {});
  std::set<std::size_t> lengths;
  for (const RunMetrics& m : found) {
    lengths.insert(m.tokens.size());
    double phases = 0;
    for (const double ms : m.phase_ms) phases += ms;
    EXPECT_NEAR(phases, m.decode_ms, 0.02 * m.decode_ms + 0.5);
    for (const RunMetrics& other : found) {
      if (other.tokens.size() > m.tokens.size()) {
        EXPECT_GT(other.decode_ms, m.decode_ms);
      }
    }
  }
  EXPECT_GT(lengths.size(), 1U) << "all ended at once";
}

TEST(LanePasses, HoldAllTokensOfAllLanesOnce) {
  for (const int lanes : {1, 2, 7, 64}) {
    for (const std::int64_t tokens : {1, 7, 33, 128, 200}) {
      for (const std::int64_t append : {1, 40, 500}) {
        std::vector<std::vector<int>> times(static_cast<std::size_t>(lanes),
                                            std::vector<int>(static_cast<std::size_t>(tokens)));
        for_each_lane_pass(lanes, tokens, 128, append, [&](const LanePass& p) {
          EXPECT_LE(p.lanes * p.rows, 128);
          EXPECT_LE(p.rows, append);
          for (int l = p.first_lane; l < p.first_lane + p.lanes; ++l) {
            for (std::int64_t t = p.begin; t < p.begin + p.rows; ++t) {
              ++times[static_cast<std::size_t>(l)][static_cast<std::size_t>(t)];
            }
          }
        });
        for (const auto& of_lane : times) {
          for (const int n : of_lane) EXPECT_EQ(n, 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace triforce
