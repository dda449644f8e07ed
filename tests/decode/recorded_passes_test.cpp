// Which passes are recorded before a generation: all that its rounds can have, and no others.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "core/forwarding_backend.h"
#include "cpu/cpu_backend.h"
#include "decode/toy_models.h"
#include "model/retrieval_cache.h"

namespace triforce {
namespace {

constexpr std::int64_t kVocab = 61, kPrompt = 90;

// Says that a pass is recorded the second time, as of a device, and counts how often each comes up.
class NotingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void replay(const PassKey& key, const std::function<void()>& body) override {
    if (key != PassKey{}) ++times[key];
    body();
  }
  bool is_unrecorded(const PassKey& key) const override {
    const auto pass = times.find(key);
    return pass == times.end() || pass->second < 2;
  }
  std::map<PassKey, int> times;
};

// Of each pass its cache, rows and wanted logits.
std::set<std::string> passes_of(const std::map<Backend::PassKey, int>& times) {
  std::set<std::string> passes;
  for (const auto& [key, n] : times) {
    constexpr auto kRows = static_cast<std::uint32_t>(kMaxPassRows + 1);
    passes.insert(fmt::format("cache {}: {} rows, logits {}, tree of {}", key.caches.front(),
                              key.kind / 4 % kRows, key.kind % 4, key.kind / 4 / kRows));
  }
  return passes;
}

struct RecordedPasses : ::testing::Test {
  std::unique_ptr<Backend> plain_ = make_cpu_backend({1, std::nullopt});
  NotingBackend noting_{*plain_};

  // What a generation of no tokens records, each pass once.
  std::set<std::string> recorded_before(ToyRun& run, Method m, const std::string& what) {
    noting_.times.clear();
    const RunMetrics none = run.generate(m, 0, 1, 0);
    EXPECT_TRUE(none.tokens.empty()) << what;
    EXPECT_EQ(none.phase_ms[static_cast<std::size_t>(phase_of(kFullPass))], 0) << what;
    for (const auto& [key, n] : noting_.times) EXPECT_EQ(n, 2) << what << ", kind " << key.kind;
    return passes_of(noting_.times);
  }
  // What generations meet after that, each a number of times: until they have met all of those.
  std::set<std::string> met_by(ToyRun& run, Method m, std::int64_t count, std::size_t all) {
    const auto before = noting_.times;
    std::map<Backend::PassKey, int> met;
    for (std::uint64_t seed = 1; seed <= 30 && met.size() < all; ++seed) {
      run.generate(m, count, seed, 0);
      for (const auto& [key, n] : noting_.times) {
        if (!before.contains(key) || before.at(key) < n) met[key] = n;
      }
    }
    return passes_of(met);
  }
};

// Of every method, whatever is accepted: with one row count left out, or one too many, the two
// differ.
TEST_F(RecordedPasses, AreThoseThatRoundsMeet) {
  const ToyPair pair(noting_, DType::kBF16, kVocab);
  SpeculationOptions o = toy_options();
  o.gamma = 6;
  o.inner_gamma = 5;
  o.synthetic = SyntheticAcceptance{{0.85}, 0.8};
  for (const MethodSpec& m : method_table()) {
    ToyRun run(noting_, pair, o, {kPrompt, 200, {m.method}});
    run.prefill(toy_prompt(kPrompt, kVocab, 0));
    for (const Gammas& g :
         {Gammas{6, 1}, Gammas{4, 2}, Gammas{1, 1}, Gammas{3, 0}, Gammas{0, 1}, Gammas{5, 5}}) {
      run.methods.set_gammas(g);
      const std::string what = fmt::format("{}, gammas {} {}", m.name, g.gamma, g.inner_gamma);
      const std::set<std::string> recorded = recorded_before(run, m.method, what);
      EXPECT_FALSE(recorded.empty()) << what;
      EXPECT_EQ(met_by(run, m.method, 200, recorded.size()), recorded) << what;
    }
  }
}

// A tree at one level has the passes of its levels, and one that verifies it. Of trees at two
// levels some rows may never come up.
TEST_F(RecordedPasses, AreThoseThatTreesMeet) {
  const ToyPair pair(noting_, DType::kBF16, kVocab);
  SpeculationOptions o = toy_options();
  o.tree = random_tree(20, 1);
  o.synthetic = SyntheticAcceptance{{0.6}, 0.6};
  for (const Method m : {Method::kDraft, Method::kRetrieval, Method::kTriForce}) {
    ToyRun run(noting_, pair, o, {kPrompt, 200, {m}});
    run.prefill(toy_prompt(kPrompt, kVocab, 0));
    const std::set<std::string> recorded = recorded_before(run, m, to_string(m));
    const std::set<std::string> met = met_by(run, m, 200, recorded.size());
    if (m == Method::kTriForce) {
      EXPECT_TRUE(std::ranges::includes(recorded, met));
    } else {
      EXPECT_EQ(met, recorded) << to_string(m);
    }
  }
}

// A drafter reads a window of any length up to its whole, in passes of at most 128 rows: the last
// of them has as many as are left.
TEST_F(RecordedPasses, OfAWindowAreThoseOfTheLengthsThatItCanHave) {
  const ToyPair pair(noting_, DType::kBF16, kVocab);
  SpeculationOptions o = toy_options();
  o.draft_cache = DraftCache::kWindow;
  for (const auto& [prompt, window, lengths] :
       {std::tuple(20, 25, 6U), {20, 150, 32U}, {130, 150, 21U}, {140, 130, 1U}, {140, 100, 0U}}) {
    o.draft_budget = window;
    ToyRun run(noting_, pair, o, {prompt, 160, {Method::kDraft}});
    run.prefill(toy_prompt(prompt, kVocab, 0));
    const std::string what = fmt::format("prompt {}, window {}", prompt, window);
    const std::set<std::string> recorded = recorded_before(run, Method::kDraft, what);
    EXPECT_EQ(recorded.size(), lengths + 1) << what;  // and one over the full cache
    EXPECT_EQ(met_by(run, Method::kDraft, 160, recorded.size()), recorded) << what;
  }
}

// Under all options; what each generation gives is what it gives where nothing is recorded.
TEST_F(RecordedPasses, ChangeNothingAndLeaveNothingToRecord) {
  const ToyPair pair(noting_, DType::kBF16, kVocab), other(*plain_, DType::kBF16, kVocab);
  std::vector<Variant> all = variants();
  const auto add = [&](const std::string& name, const auto& change) {
    all.push_back({name, toy_options()});
    change(all.back().options);
  };
  add("speculative", [](auto&) {});
  add("the rule that was published", [](auto& o) { o.inner_correction = Correction::kTarget; });
  add("recovery", [](auto& o) { o.measure_recovery = true; });
  add("rebuild token", [](auto& o) { o.rebuild.kind = RebuildPolicy::Kind::kToken; });
  for (const Variant& v : all) {
    const bool each_token = v.options.rebuild.kind == RebuildPolicy::Kind::kToken;
    const std::vector<Method> methods =
        each_token ? std::vector{Method::kRetrieval, Method::kStreaming} : all_methods();
    const RunShape shape{kPrompt, 60, methods};
    ToyRun run(noting_, pair, v.options, shape), expected(*plain_, other, v.options, shape);
    const std::vector<Token> prompt = toy_prompt(kPrompt, kVocab, 1);
    run.prefill(prompt);
    expected.prefill(prompt);
    for (const Method m : run.asked) {
      const std::string what = fmt::format("{}, {}", v.name, to_string(m));
      std::set<std::string> passes = recorded_before(run, m, what);
      for (const std::uint64_t seed : {7U, 8U}) {
        expect_equal_runs(run.generate(m, 60, seed, 0), expected.generate(m, 60, seed, 0), what);
        EXPECT_EQ(passes_of(noting_.times), passes) << what;
      }
    }
    EXPECT_EQ(run.methods.retrieval_cache(0)->selected_chunks(),
              expected.methods.retrieval_cache(0)->selected_chunks())
        << v.name;
  }
}

// A later generation of the same method, or one that has the same passes, runs none beforehand.
TEST_F(RecordedPasses, AreRecordedOnce) {
  const ToyPair pair(noting_, DType::kBF16, kVocab);
  ToyRun run(noting_, pair, toy_options(), {kPrompt, 10, all_methods()});
  run.prefill(toy_prompt(kPrompt, kVocab, 0));
  for (const Method m : all_methods()) run.generate(m, 0, 1, 0);
  const auto times = noting_.times;
  for (const Method m : all_methods()) run.generate(m, 0, 2, 0);
  run.prefill(toy_prompt(kPrompt, kVocab, 1));
  for (const Method m : all_methods()) run.generate(m, 0, 3, 0);
  EXPECT_EQ(noting_.times, times);
}

}  // namespace
}  // namespace triforce
