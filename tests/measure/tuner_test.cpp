// How long tuning takes, by an engine whose every token takes its time.
#include "measure/tuner.h"

#include <gtest/gtest.h>

#include <thread>

namespace triforce {
namespace {

// A round is a token, which takes `token_ms`, and of the method `slow` three times as long; passes
// are said to be much faster.
class SlowEngine final : public Engine {
 public:
  explicit SlowEngine(int token_ms, std::optional<Method> slow = {})
      : token_ms_(token_ms), slow_(slow) {}

  std::optional<PromptsKept> prefill_context(std::span<const PromptTokens> /*prompts*/,
                                             const PrefillProgress& /*progress*/,
                                             const StopRequested& /*stop*/) override {
    return PromptsKept{};
  }
  PrefillMetrics prefill_methods(const PrefillProgress& /*progress*/,
                                 const StopRequested& /*stop*/) override {
    return {};
  }
  std::vector<RunMetrics> generate(Method method, std::int64_t count, std::uint64_t /*seed*/,
                                   std::uint32_t /*first_prompt*/, const TokenCallback& on_tokens,
                                   const StopRequested& stop) override {
    ++generations;
    const int token_ms = method == slow_ ? 3 * token_ms_ : token_ms_;
    RunMetrics m;
    const MethodSpec& spec = spec_of(method);
    for (int l = 0; l < spec.levels(); ++l) m.levels.emplace_back();
    while (std::ssize(m.tokens) < count && !m.interrupted) {
      std::this_thread::sleep_for(std::chrono::milliseconds(token_ms));
      ++tokens;
      m.tokens.push_back(5);
      m.origins.push_back(0);
      m.decode_ms += token_ms;
      m.phase_ms[static_cast<std::size_t>(Phase::kCacheUpdate)] += token_ms;
      ++m.rounds;
      on_tokens(0, std::span(m.tokens).last(1), std::span(m.origins).last(1));
      m.interrupted = stop && stop();
    }
    return {m};
  }
  void set_lanes(int /*lanes*/) override {}
  void set_gammas(const Gammas& /*gammas*/) override {}
  void set_tree(const std::optional<DraftTree>& /*tree*/) override {}
  void set_budget(std::int64_t /*budget*/) override {}
  double pass_ms(Pass /*pass*/, int /*rows*/, int /*repetitions*/) override { return 0.01; }
  double top2_margin(int /*lane*/, std::span<const Token> /*generated*/) override { return 0; }
  std::vector<double> divergence(Method /*method*/, int /*lane*/,
                                 std::span<const Token> /*generated*/) override {
    return {};
  }
  std::vector<float> probs_after_prompt(int /*lane*/) override { return {}; }
  std::vector<std::vector<std::int32_t>> selected_chunks(int /*lane*/) override { return {}; }

  int generations = 0, tokens = 0;

 private:
  int token_ms_;
  std::optional<Method> slow_;
};

struct Tuned {
  int generations = 0, tokens = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;
  bool chosen = false;
};

Tuned tune(int token_ms, TuningLimits limits) {
  RunConfig config;
  config.methods = {Method::kAutoregressive, Method::kDraft, Method::kTriForce};
  config.auto_gamma = config.auto_inner_gamma = true;
  config.speculation.gamma = 20;
  config.speculation.inner_gamma = 8;
  config.gen_len = 4096;
  Tuned tuned;
  Tuner tuner(
      config, 512, true,
      {{},
       [&](std::int64_t done, std::int64_t total) { tuned.steps.emplace_back(done, total); },
       {}},
      limits);
  SlowEngine engine(token_ms);
  tuner.use_prompt(engine, 0, true);
  tuned.generations = engine.generations;
  tuned.tokens = engine.tokens;
  tuned.chosen = tuner.chosen();
  return tuned;
}

// Generations are a thousand tokens by the time of a pass, and each token takes a thousand times as
// long: what is spent stays within twice what is meant, and a round more of each generation.
TEST(Tuner, IsBoundedByTimeNotByTheTimeOfAPass) {
  constexpr TuningLimits kLimits{.generating_s = 0.2, .enough_s = 0.6};
  constexpr int kTokenMs = 10;
  const Tuned t = tune(kTokenMs, kLimits);
  EXPECT_TRUE(t.chosen);
  // Of the exploration and of the comparison with the defaults.
  const double most = 2 * (2 * kLimits.generating_s / (kTokenMs * 1e-3)) + t.generations;
  EXPECT_LE(t.tokens, most);
  EXPECT_GE(t.tokens, t.generations);
}

// Whichever is slow, it is passed over; what it would have taken stands beside the other.
TEST(Tuner, ChoosesTheFastestMethod) {
  for (const Method slow : {Method::kDraft, Method::kStreaming}) {
    const Method fast = slow == Method::kDraft ? Method::kStreaming : Method::kDraft;
    RunConfig config;
    config.methods = {Method::kAutoregressive, Method::kDraft, Method::kStreaming};
    config.auto_method = true;
    config.gen_len = 64;
    Tuner tuner(config, 512, true, {{}, [](std::int64_t, std::int64_t) {}, {}},
                {.generating_s = 0.3, .enough_s = 1});
    SlowEngine engine(1, slow);
    tuner.use_prompt(engine, 0, true);
    ASSERT_TRUE(tuner.chosen());
    EXPECT_TRUE(tuner.is_passed_over(slow));
    EXPECT_FALSE(tuner.is_passed_over(fast));
    EXPECT_FALSE(tuner.is_passed_over(Method::kAutoregressive));
    EXPECT_FALSE(tuner.of(slow));
    const std::optional<CaseTuning>& chosen = tuner.of(fast);
    ASSERT_TRUE(chosen && chosen->methods);
    ASSERT_EQ(chosen->methods->size(), 2U);
    EXPECT_EQ(chosen->methods->front().method, to_string(fast));
    EXPECT_EQ(chosen->methods->front().ms_per_token, chosen->predicted_ms_per_token);
    EXPECT_EQ(chosen->methods->back().method, to_string(slow));
    EXPECT_LT(chosen->methods->front().ms_per_token, chosen->methods->back().ms_per_token);
    EXPECT_EQ(chosen->chosen.gamma, config.speculation.gamma);  // which was given
  }
}

TEST(Tuner, SaysEachPartBeforeItBegins) {
  const Tuned t = tune(1, {.generating_s = 0.01, .enough_s = 0.1});
  ASSERT_GE(t.steps.size(), 6U);
  std::int64_t last = -1;
  int restarts = 0;
  for (const auto& [done, total] : t.steps) {
    EXPECT_LT(done, total);
    if (done <= last) ++restarts;  // the comparison with the defaults counts anew
    last = done;
  }
  EXPECT_LE(restarts, 1);
  EXPECT_GE(std::ssize(t.steps), t.generations);
}

}  // namespace
}  // namespace triforce
