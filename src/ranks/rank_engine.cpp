// Tests: tests/ranks/rank_engine_test.cpp
#include "ranks/rank_engine.h"

#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>
#include <variant>

namespace triforce {
namespace {

using ChunksOfLayers = std::vector<std::vector<std::int32_t>>;

// What a caller on rank 0 is told while a call goes on.
struct Callbacks {
  PrefillProgress progress;
  TokenCallback on_tokens;
  StopRequested stop;
};

// What rank 0 finds, on every rank.
template <class Find>
auto of_rank_0(RankLinks& links, const Find& find) {
  decltype(find()) found{};
  if (links.shard().rank == 0) found = find();
  links.broadcast_value(found);
  return found;
}

// Asked on all ranks at once.
StopRequested common_stop(RankLinks& links, const StopRequested& stop) {
  return [&links, &stop] { return of_rank_0(links, [&] { return stop && stop(); }); };
}

// The ids of all ranks' heads, from each rank's own.
ChunksOfLayers gather_chunks(RankLinks& links, ChunksOfLayers chunks) {
  for (std::vector<std::int32_t>& ids : chunks) {
    if (ids.empty()) continue;  // of a dense layer, on every rank
    const std::size_t n = ids.size(), rank = static_cast<std::size_t>(links.shard().rank);
    std::vector<std::int32_t> all(n * static_cast<std::size_t>(links.shard().size));
    std::ranges::copy(ids, all.begin() + static_cast<std::ptrdiff_t>(rank * n));
    links.all_gather(std::as_writable_bytes(std::span(all)));
    ids = std::move(all);
  }
  return chunks;
}

// A call of an engine as every rank makes it.
struct OnRank {
  RankLinks& links;
  Engine& engine;
  std::span<const Token> tokens;
  const Callbacks& callbacks;  // empty but on rank 0
  StopRequested stop;          // the same on all ranks
};

// Calls are what is told of them, and what they do.
struct PrefillContext {
  int lanes;
  std::array<std::int64_t, kMaxSequences> lengths;  // of their prompts, which follow each other
  std::optional<PromptsKept> operator()(const OnRank& r) const {
    std::vector<PromptTokens> prompts;
    std::span<const Token> rest = r.tokens;
    for (int l = 0; l < lanes; ++l) {
      const auto n = static_cast<std::size_t>(lengths[static_cast<std::size_t>(l)]);
      prompts.push_back(rest.first(n));
      rest = rest.subspan(n);
    }
    return r.engine.prefill_context(prompts, r.callbacks.progress, r.stop);
  }
};
struct PrefillMethods {
  PrefillMetrics operator()(const OnRank& r) const {
    return r.engine.prefill_methods(r.callbacks.progress, r.stop);
  }
};
struct Generate {
  Method method;
  std::int64_t count;
  std::uint64_t seed;
  std::uint32_t first_prompt;
  std::vector<RunMetrics> operator()(const OnRank& r) const {
    return r.engine.generate(method, count, seed, first_prompt, r.callbacks.on_tokens, r.stop);
  }
};
struct SetLanes {
  int lanes;
  void operator()(const OnRank& r) const { r.engine.set_lanes(lanes); }
};
struct SetGammas {
  Gammas gammas;
  void operator()(const OnRank& r) const { r.engine.set_gammas(gammas); }
};
struct SetTree {
  int nodes;  // 0: no tree
  std::array<std::int16_t, kMaxProposals> parents;
  void operator()(const OnRank& r) const {
    std::optional<DraftTree> tree;
    if (nodes > 0) tree.emplace(std::vector(parents.begin(), parents.begin() + nodes));
    r.engine.set_tree(tree);
  }
};
struct SetBudget {
  std::int64_t tokens;
  void operator()(const OnRank& r) const { r.engine.set_budget(tokens); }
};
struct PassMs {
  Pass pass;
  int rows, repetitions;
  double operator()(const OnRank& r) const { return r.engine.pass_ms(pass, rows, repetitions); }
};
struct Top2Margin {
  int lane;
  double operator()(const OnRank& r) const { return r.engine.top2_margin(lane, r.tokens); }
};
struct Divergence {
  Method method;
  int lane;
  std::vector<double> operator()(const OnRank& r) const {
    return r.engine.divergence(method, lane, r.tokens);
  }
};
struct ProbsAfterPrompt {
  int lane;
  std::vector<float> operator()(const OnRank& r) const { return r.engine.probs_after_prompt(lane); }
};
struct SelectedChunks {
  int lane;
  ChunksOfLayers operator()(const OnRank& r) const {
    return gather_chunks(r.links, r.engine.selected_chunks(lane));
  }
};
// These are of no engine.
struct Build {
  int run;
  std::int64_t max_prompt, max_generated;
};
struct Drop {};
struct Read {};
struct End {};

// One call; `tokens` tokens more follow.
struct Call {
  std::variant<End, Build, Drop, Read, PrefillContext, PrefillMethods, Generate, SetLanes,
               SetGammas, SetTree, SetBudget, PassMs, Top2Margin, Divergence, ProbsAfterPrompt,
               SelectedChunks>
      of;
  std::int64_t tokens = 0;
};

// Whether every rank has this error by itself: it follows from data that all of them have.
bool is_on_all_ranks(const Error& e) {
  return e.code() == ExitCode::kNumeric || e.code() == ExitCode::kUsage ||
         e.code() == ExitCode::kBadInput;
}

// Runs a part of a call; tells the other ranks if it fails on this one alone.
template <class Body>
auto guarded(RankLinks& links, const Body& body) {
  try {
    return body();
  } catch (const Error& e) {
    if (!is_on_all_ranks(e)) links.fail(e);
    throw;
  } catch (const std::bad_alloc&) {
    links.fail({ExitCode::kResources, "OutOfMemory", "the system refused an allocation"});
    throw;
  }
}

void announce(RankLinks& links, const decltype(Call::of)& of, std::span<const Token> tokens = {}) {
  Call call{of, static_cast<std::int64_t>(tokens.size())};
  links.broadcast_value(call);
  std::vector<Token> copy(tokens.begin(), tokens.end());
  if (!copy.empty()) links.broadcast(std::as_writable_bytes(std::span(copy)));
}

// The next call, and its tokens.
Call receive(RankLinks& links, std::vector<Token>& tokens) {
  links.await_rank_0();
  Call call;
  links.broadcast_value(call);
  tokens.resize(static_cast<std::size_t>(call.tokens));
  if (!tokens.empty()) links.broadcast(std::as_writable_bytes(std::span(tokens)));
  return call;
}

class LeadingEngine final : public Engine {
  template <class Of>
  auto make(const Of& of, std::span<const Token> tokens = {}, const Callbacks& callbacks = {}) {
    announce(links_, of, tokens);
    return guarded(links_, [&] {
      return of({links_, *local_, tokens, callbacks, common_stop(links_, callbacks.stop)});
    });
  }

 public:
  LeadingEngine(RankLinks& links, const BuildEngine& build, const Build& of) : links_(links) {
    announce(links_, of);
    local_ = guarded(links_, [&] { return build(of.run, of.max_prompt, of.max_generated); });
  }
  ~LeadingEngine() override {
    try {
      announce(links_, Drop{});
      local_.reset();
      // No device is then at work for another rank's, and each may go.
      links_.meet(links_.timeout());
    } catch (const Error&) {
      // The links have ended, and with them the engines of other ranks.
    }
  }

  std::optional<PromptsKept> prefill_context(std::span<const PromptTokens> prompts,
                                             const PrefillProgress& progress,
                                             const StopRequested& stop) override {
    PrefillContext of{static_cast<int>(prompts.size()), {}};
    std::vector<Token> tokens;
    for (std::size_t l = 0; l < prompts.size(); ++l) {
      of.lengths.at(l) = std::ssize(prompts[l]);
      tokens.insert(tokens.end(), prompts[l].begin(), prompts[l].end());
    }
    return make(of, tokens, {progress, {}, stop});
  }
  PrefillMetrics prefill_methods(const PrefillProgress& progress,
                                 const StopRequested& stop) override {
    return make(PrefillMethods{}, {}, {progress, {}, stop});
  }
  std::vector<RunMetrics> generate(Method method, std::int64_t count, std::uint64_t seed,
                                   std::uint32_t first_prompt, const TokenCallback& on_tokens,
                                   const StopRequested& stop) override {
    return make(Generate{method, count, seed, first_prompt}, {}, {{}, on_tokens, stop});
  }
  void set_lanes(int lanes) override { make(SetLanes{lanes}); }
  void set_gammas(const Gammas& gammas) override { make(SetGammas{gammas}); }
  void set_tree(const std::optional<DraftTree>& tree) override {
    SetTree call{};
    if (tree) {
      call.nodes = tree->nodes();
      std::ranges::copy(tree->parents(), call.parents.begin());
    }
    make(call);
  }
  void set_budget(std::int64_t budget) override { make(SetBudget{budget}); }
  double pass_ms(Pass pass, int rows, int repetitions) override {
    return make(PassMs{pass, rows, repetitions});
  }
  double top2_margin(int lane, std::span<const Token> generated) override {
    return make(Top2Margin{lane}, generated);
  }
  std::vector<double> divergence(Method method, int lane,
                                 std::span<const Token> generated) override {
    return make(Divergence{method, lane}, generated);
  }
  std::vector<float> probs_after_prompt(int lane) override { return make(ProbsAfterPrompt{lane}); }
  ChunksOfLayers selected_chunks(int lane) override { return make(SelectedChunks{lane}); }

 private:
  RankLinks& links_;
  std::unique_ptr<Engine> local_;
};

}  // namespace

bool RankBackend::is_unrecorded(const PassKey& key) const {
  const auto here = static_cast<std::uint8_t>(ForwardingBackend::is_unrecorded(key) ? 1 : 0);
  const std::vector<std::uint8_t> ranks = links_.gather_values(here);
  return std::ranges::find(ranks, 1) != ranks.end();
}

void RankBackend::do_sample(std::span<const SampleRequest> requests, Acceptance acceptance,
                            std::span<Token> out) {
  if (links_.shard().rank == 0) ForwardingBackend::do_sample(requests, acceptance, out);
  links_.broadcast(std::as_writable_bytes(out));
}

void RankBackend::do_verify(std::span<const VerifyRequest> requests, const VerifyRule& rule,
                            std::span<VerifyResult> out) {
  if (links_.shard().rank == 0) ForwardingBackend::do_verify(requests, rule, out);
  links_.broadcast(std::as_writable_bytes(out));
}

std::unique_ptr<Engine> lead(RankLinks& links, const BuildEngine& build, int run,
                             std::int64_t max_prompt, std::int64_t max_generated) {
  return std::make_unique<LeadingEngine>(links, build, Build{run, max_prompt, max_generated});
}

void follow(RankLinks& links, const BuildEngine& build, const std::function<RankReading()>& read) {
  const Callbacks none;
  std::unique_ptr<Engine> engine;
  std::vector<Token> tokens;
  for (;;) {
    const Call call = receive(links, tokens);
    if (std::holds_alternative<End>(call.of)) return;
    if (std::holds_alternative<Drop>(call.of)) {
      engine.reset();
      links.meet(links.timeout());
      continue;
    }
    if (std::holds_alternative<Read>(call.of)) {
      links.gather_values(read ? read() : RankReading{});
      continue;
    }
    try {
      guarded(links, [&] {
        if (const Build* const of = std::get_if<Build>(&call.of)) {
          engine = build(of->run, of->max_prompt, of->max_generated);
          return;
        }
        std::visit(
            [&](const auto& of) {
              if constexpr (std::is_invocable_v<decltype(of), const OnRank&>) {
                of({links, *engine, tokens, none, common_stop(links, none.stop)});
              }
            },
            call.of);
      });
    } catch (const Error& e) {
      if (!is_on_all_ranks(e)) throw;  // rank 0 has it too, and goes on
    }
  }
}

std::vector<RankReading> gather_readings(RankLinks& links, const RankReading& own) {
  announce(links, Read{});
  return links.gather_values(own);
}

void dismiss(RankLinks& links) { announce(links, End{}); }

}  // namespace triforce
