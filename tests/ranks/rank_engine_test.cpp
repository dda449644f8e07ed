// One rank leads, the others follow: its calls, its draws, its stop, its end.
#include "ranks/rank_engine.h"

#include <gtest/gtest.h>

#include <csignal>
#include <map>

#include "comm/host_communicator.h"
#include "comm/ranks.h"
#include "cpu/cpu_backend.h"
#include "decode/lanes.h"

namespace triforce {
namespace {

// Those and one where nothing verifies.
std::vector<Method> with_lossy() {
  std::vector<Method> methods = all_methods();
  methods.push_back(Method::kLossyQuantised);
  return methods;
}

using testing::as_text;
using testing::from_text;
using testing::RankEnd;
using testing::run_ranks;

constexpr std::int64_t kVocab = 211, kPrompt = 300, kCount = 40;

// Draws and verifies only where it should.
class RankZeroOnly final : public ForwardingBackend {
 public:
  RankZeroOnly(Backend& to, int rank) : ForwardingBackend(to), rank_(rank) {}

 protected:
  void do_sample(std::span<const SampleRequest> requests, Acceptance acceptance,
                 std::span<Token> out) override {
    TF_CHECK(rank_ == 0, "rank {} draws", rank_);
    ForwardingBackend::do_sample(requests, acceptance, out);
  }
  void do_verify(std::span<const VerifyRequest> requests, const VerifyRule& rule,
                 std::span<VerifyResult> out) override {
    TF_CHECK(rank_ == 0, "rank {} verifies", rank_);
    ForwardingBackend::do_verify(requests, rule, out);
  }

 private:
  int rank_;
};

// Says that a pass is unrecorded until it ran so often.
class Recorder final : public ForwardingBackend {
 public:
  Recorder(Backend& to, int times) : ForwardingBackend(to), times_(times) {}
  void replay(const PassKey& key, const std::function<void()>& body) override {
    ++ran_[key];
    ++runs;
    ForwardingBackend::replay(key, body);
  }
  bool is_unrecorded(const PassKey& key) const override {
    const auto ran = ran_.find(key);
    return (ran == ran_.end() ? 0 : ran->second) < times_;
  }
  int runs = 0;

 private:
  int times_;
  std::map<PassKey, int> ran_;
};

// Between processes of the CPU nothing is recorded, and any pass can be.
class Recordable final : public Communicator {
 public:
  explicit Recordable(Communicator& to) : Communicator(to.shard()), to_(to) {}
  std::string description() const override { return to_.description(); }
  bool recordable() const override { return true; }

 protected:
  void do_all_gather(TensorView parts) override { to_.all_gather(parts); }

 private:
  Communicator& to_;
};

// A rank of a toy pair in f32. `to_record`: how often a pass must run until it is recorded.
struct Rank {
  explicit Rank(RankLinks& l, int to_record = 0)
      : links(l),
        cpu(make_cpu_backend({.threads = 1, .isa = {}})),
        recorder(*cpu, to_record),
        checked(recorder, l.shard().rank),
        backend(checked, l),
        sockets(*cpu, l),
        ranks(sockets),
        pair(*cpu, DType::kF32, toy_config("toy-target", 2, 12, 6, 16, kVocab),
             toy_config("toy-draft", 1, 2, 2, 16, kVocab), l.shard()) {}

  BuildEngine builder(const SpeculationOptions& options, int lanes = 1) {
    return [this, options, lanes](int, std::int64_t max_prompt, std::int64_t max_generated) {
      return make_engine(backend, pair.target, &pair.draft, options,
                         {max_prompt, max_generated, with_lossy(), {}, lanes}, &ranks);
    };
  }
  // What `led` returns on rank 0; the others follow.
  std::string run(const BuildEngine& build, const std::function<std::string(Engine&)>& led) {
    if (links.shard().rank != 0) {
      follow(links, build);
      return "followed";
    }
    std::string value;
    {
      const std::unique_ptr<Engine> engine = lead(links, build, 0, kPrompt, kCount);
      value = led(*engine);
    }
    dismiss(links);
    return value;
  }

  RankLinks& links;
  std::unique_ptr<Backend> cpu;
  Recorder recorder;
  RankZeroOnly checked;
  RankBackend backend;
  HostCommunicator sockets;
  Recordable ranks;
  ToyPair pair;
};

bool prefill_context(Engine& e, std::uint32_t prompt, const PrefillProgress& progress,
                     const StopRequested& stop) {
  const std::vector<Token> tokens = toy_prompt(kPrompt, kVocab, prompt);
  return e.prefill_context(prompts_of({tokens}), progress, stop).has_value();
}

void prefill(Engine& e, std::uint32_t prompt = 5) {
  EXPECT_TRUE(prefill_context(e, prompt, {}, {}));
  EXPECT_FALSE(e.prefill_methods({}, {}).interrupted);
}

std::vector<RankEnd> run_engines(int size, const SpeculationOptions& options,
                                 const std::function<std::string(Engine&)>& led) {
  return run_ranks(size, [&](RankLinks& links) {
    Rank rank(links);
    return rank.run(rank.builder(options), led);
  });
}

std::string value_of_rank_0(const std::vector<RankEnd>& ends) {
  for (std::size_t r = 0; r < ends.size(); ++r) {
    EXPECT_TRUE(ends[r].returned) << "rank " << r << ": " << ends[r].what;
    if (r > 0) {
      EXPECT_EQ(ends[r].value, "followed");
    }
  }
  return ends[0].value;
}

SpeculationOptions greedy() {
  SpeculationOptions o = toy_options();
  o.least_budget = 48;
  o.sampling = {0.0F, 1.0F, 0};
  return o;
}

TEST(RankEngine, EveryCallAnswersAsOnOneRank) {
  const auto all_calls = [](Engine& e) {
    std::string out;
    for (const std::uint32_t prompt : {5U, 6U}) {
      prefill(e, prompt);
      for (const auto& ids : e.selected_chunks(0)) out += as_text(ids);
      e.set_budget(48);
      e.set_budget(64);
      EXPECT_FALSE(e.prefill_methods({}, {}).interrupted);
      e.set_gammas({3, 1});
      std::vector<Token> tokens;
      for (const Method m : all_methods()) {
        tokens = e.generate(m, kCount, 17, prompt, {}, {}).front().tokens;
        out += as_text(tokens);
      }
      tokens = e.generate(kBaselineMethod, kCount, 17, prompt, {}, {}).front().tokens;
      out += as_text(tokens);
      EXPECT_GT(e.pass_ms(Pass::kFull, 7, 2), 0);
      EXPECT_GT(e.top2_margin(0, std::span(tokens).first(20)), 0);
      // Ranks add their parts in other orders: the same but for rounding.
      double divergence = 0;
      for (const double x : e.divergence(Method::kLossyQuantised, 0, std::span(tokens).first(20))) {
        divergence += x;
      }
      EXPECT_GT(divergence, 0);
      EXPECT_LT(divergence, 20);
      EXPECT_EQ(e.probs_after_prompt(0).size(), static_cast<std::size_t>(kVocab));
    }
    return out;
  };
  const std::string alone = value_of_rank_0(run_engines(1, greedy(), all_calls));
  // Two prompts: chunks of two layers and six heads, tokens of each method.
  const std::size_t methods = all_methods().size() + 1;
  EXPECT_EQ(alone.size(), 2 * sizeof(Token) * (2 * 6 * 8 + methods * kCount));
  for (const int size : {2, 3}) {
    EXPECT_EQ(value_of_rank_0(run_engines(size, greedy(), all_calls)), alone) << size;
  }
}

TEST(RankEngine, CoupledStreamsOfAllMethodsEqualTheBaseline) {
  SpeculationOptions o = toy_options();
  o.acceptance = Acceptance::kCoupled;
  const auto ends = run_engines(2, o, [](Engine& e) -> std::string {
    prefill(e);
    const auto stream = [&](Method m) {
      return as_text(e.generate(m, kCount, 3, 0, {}, {}).front().tokens);
    };
    const std::string baseline = stream(kBaselineMethod);
    for (const Method m : all_methods()) {
      if (stream(m) != baseline) return to_string(m);
    }
    return "equal";
  });
  EXPECT_EQ(value_of_rank_0(ends), "equal");
}

// Lanes of a batch on two ranks get what each prompt gets on one.
TEST(RankEngine, LanesGetWhatTheyGetAlone) {
  SpeculationOptions o = toy_options();
  o.ignore_eos = false;
  const auto prompts = toy_prompts(3, kPrompt, kVocab);
  const auto run = [&](int ranks, int lanes) {
    return value_of_rank_0(run_ranks(ranks, [&](RankLinks& links) {
      Rank rank(links);
      return rank.run(rank.builder(o, lanes), [&](Engine& e) {
        std::string out;
        std::map<Method, std::string> by_method;
        for (std::size_t first = 0; first < prompts.size();
             first += static_cast<std::size_t>(lanes)) {
          const std::vector<PromptTokens> all = prompts_of(prompts);
          EXPECT_TRUE(e.prefill_context(
              std::span(all).subspan(first, static_cast<std::size_t>(lanes)), {}, {}));
          EXPECT_FALSE(e.prefill_methods({}, {}).interrupted);
          for (const Method m : all_methods()) {
            for (const RunMetrics& r :
                 e.generate(m, kCount, 3, static_cast<std::uint32_t>(first), {}, {})) {
              by_method[m] += as_text(r.tokens) + fmt::format(" {} ", r.levels.back().accepted);
            }
          }
          for (int l = 0; l < lanes; ++l) {
            for (const auto& ids : e.selected_chunks(l)) out += as_text(ids);
            EXPECT_GT(e.top2_margin(l, std::span(prompts.front()).first(9)), 0);
            EXPECT_EQ(e.probs_after_prompt(l).size(), static_cast<std::size_t>(kVocab));
          }
        }
        for (const auto& [m, text] : by_method) out += text;
        return out;
      });
    }));
  };
  const std::string alone = run(2, 1);
  EXPECT_EQ(run(2, 3), alone);
  EXPECT_EQ(run(1, 3), run(1, 1));
}

// Whichever rank has passes to record, all run them at once.
TEST(RankEngine, RanksRecordTheSamePasses) {
  std::vector<std::string> streams;
  for (const auto& [first, second] : {std::pair(0, 0), {2, 0}, {0, 2}, {1, 2}}) {
    SCOPED_TRACE(fmt::format("{} and {} times", first, second));
    const auto ends = run_ranks(2, [&, times = std::array{first, second}](RankLinks& links) {
      Rank rank(links, times[static_cast<std::size_t>(links.shard().rank)]);
      const std::string stream = rank.run(rank.builder(greedy()), [](Engine& e) {
        prefill(e);
        return as_text(e.generate(kDefaultMethod, kCount, 3, 0, {}, {}).front().tokens);
      });
      return fmt::format("{:6}{}", rank.recorder.runs, stream);
    });
    for (const RankEnd& end : ends) ASSERT_TRUE(end.returned) << end.what;
    EXPECT_EQ(ends[0].value.substr(0, 6), ends[1].value.substr(0, 6));
    streams.push_back(ends[0].value);
    EXPECT_EQ(streams.back().substr(6), streams.front().substr(6));
  }
  for (const std::size_t i : {1U, 2U, 3U}) EXPECT_GT(streams[i], streams[0]) << "none was run";
}

TEST(RankEngine, TokensAndProgressReachRankZeroOnly) {
  const auto ends = run_engines(2, greedy(), [](Engine& e) {
    std::int64_t passes = 0;
    EXPECT_TRUE(prefill_context(e, 5, [&](Pass, std::int64_t, std::int64_t) { ++passes; }, {}));
    EXPECT_FALSE(e.prefill_methods({}, {}).interrupted);
    std::vector<Token> seen;
    const auto on_tokens = [&](int, std::span<const Token> tokens, std::span<const std::uint8_t>) {
      seen.insert(seen.end(), tokens.begin(), tokens.end());
    };
    const RunMetrics m = e.generate(kDefaultMethod, kCount, 1, 0, on_tokens, {}).front();
    return passes > 0 && seen == m.tokens ? std::string("seen") : "not seen";
  });
  EXPECT_EQ(value_of_rank_0(ends), "seen");
}

TEST(RankEngine, AStopOnRankZeroStopsAllAndTheyGoOn) {
  const auto ends = run_engines(3, greedy(), [](Engine& e) {
    EXPECT_FALSE(prefill_context(e, 5, {}, [] { return true; }));
    prefill(e);
    int rounds = 0;
    const RunMetrics cut =
        e.generate(kDefaultMethod, kCount, 1, 0, {}, [&] { return ++rounds > 3; }).front();
    const RunMetrics whole = e.generate(kDefaultMethod, kCount, 1, 0, {}, {}).front();
    EXPECT_TRUE(cut.interrupted);
    EXPECT_LT(cut.tokens.size(), whole.tokens.size());
    return std::to_string(whole.tokens.size());
  });
  EXPECT_EQ(value_of_rank_0(ends), std::to_string(kCount));
}

TEST(RankEngine, WhatIsWrongOnAllRanksIsAnErrorOfTheCallAlone) {
  const auto ends = run_ranks(2, [](RankLinks& links) {
    Rank rank(links);
    std::string said;
    // Refused the first time, with these lengths.
    const BuildEngine build = [&](int run, std::int64_t max_prompt, std::int64_t max_generated) {
      SpeculationOptions o = greedy();
      if (max_prompt == 2) o.gamma = 99;
      return rank.builder(o)(run, max_prompt, max_generated);
    };
    if (links.shard().rank == 0) {
      try {
        lead(links, build, 0, 2, kCount);
      } catch (const Error& e) {
        said = e.what();
      }
    }
    return said + rank.run(build, [](Engine& e) {
      prefill(e);
      return fmt::format(", then {}",
                         e.generate(kDefaultMethod, kCount, 1, 0, {}, {}).front().tokens.size());
    });
  });
  EXPECT_EQ(value_of_rank_0(ends), "--gamma: expected 1 to 63, found 99, then 40");
}

TEST(RankEngine, WhatIsWrongOnOneRankEndsTheRun) {
  const auto ends = run_ranks(3, [](RankLinks& links) {
    Rank rank(links);
    const BuildEngine build = [&](int run, std::int64_t max_prompt, std::int64_t max_generated) {
      if (links.shard().rank == 1) throw_resources("OutOfMemory", "cannot allocate 7 GB");
      return rank.builder(greedy())(run, max_prompt, max_generated);
    };
    return rank.run(build, [](Engine& e) {
      prefill(e);
      return "went on";
    });
  });
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.code, ExitCode::kResources) << end.value;
    EXPECT_NE(end.what.find("cannot allocate 7 GB"), std::string::npos) << end.what;
  }
  EXPECT_NE(ends[0].what.find("rank 1: "), std::string::npos) << ends[0].what;
}

TEST(RankEngine, AFollowerThatIsKilledOrStoppedIsNamed) {
  for (const bool stops : {false, true}) {
    const auto ends = run_ranks(
        2,
        [&](RankLinks& links) {
          Rank rank(links);
          links.meet();
          int built = 0;
          const BuildEngine build = [&](int run, std::int64_t max_prompt,
                                        std::int64_t max_generated) {
            if (links.shard().rank == 1 && ++built == 2) ::raise(stops ? SIGSTOP : SIGKILL);
            return rank.builder(greedy())(run, max_prompt, max_generated);
          };
          if (links.shard().rank == 0) lead(links, build, 0, kPrompt, kCount).reset();
          return rank.run(build, [](Engine& e) {
            prefill(e);
            return "went on";
          });
        },
        std::chrono::seconds(3));
    EXPECT_EQ(ends[0].code, ExitCode::kCommunication) << ends[0].value;
    EXPECT_NE(ends[0].what.find("rank 1: expected"), std::string::npos) << ends[0].what;
  }
}

}  // namespace
}  // namespace triforce
