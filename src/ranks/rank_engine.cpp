#include "ranks/rank_engine.h"

#include <algorithm>
#include <new>
#include <utility>
#include <variant>

namespace triforce {
namespace {

// One call with all that any of them is told; `tokens` more follow.
struct Call {
  enum class Kind : std::uint8_t {
    kBuild,
    kDrop,
    kPrefillContext,
    kPrefillMethods,
    kGenerate,
    kSetGammas,
    kSetBudget,
    kPassMs,
    kTop2Margin,
    kProbsAfterPrompt,
    kSelectedChunks,
    kLoad,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  Method method{};
  Pass pass{};
  Gammas gammas{};
  int rows = 0, repetitions = 0;
  std::uint32_t prompt_index = 0;
  std::uint64_t seed = 0;
  std::int64_t count = 0;       // to generate; of kSetBudget, tokens
  std::int64_t max_prompt = 0;  // kBuild, and `count`
  std::int64_t tokens = 0;
};

// What a caller on rank 0 is told while a call goes on.
struct Callbacks {
  PrefillProgress progress;
  TokenCallback on_tokens;
  StopRequested stop;
};

using ChunksOfLayers = std::vector<std::vector<std::int32_t>>;
using Answer = std::variant<std::monostate, bool, double, PrefillMetrics, RunMetrics,
                            std::vector<float>, ChunksOfLayers>;

// Asked on all ranks at once, answered by rank 0.
StopRequested common_stop(RankLinks& links, const StopRequested& stop) {
  return [&links, &stop] {
    auto stops = static_cast<std::uint8_t>(links.shard().rank == 0 && stop && stop() ? 1 : 0);
    links.broadcast_value(stops);
    return stops != 0;
  };
}

// The ids of all ranks' heads, from each rank's own.
ChunksOfLayers gather_chunks(RankLinks& links, ChunksOfLayers chunks) {
  for (std::vector<std::int32_t>& ids : chunks) {
    if (ids.empty()) continue;  // of a dense layer, on every rank
    const std::size_t n = ids.size(), rank = static_cast<std::size_t>(links.shard().rank);
    std::vector<std::int32_t> all(n * static_cast<std::size_t>(links.shard().size));
    std::copy(ids.begin(), ids.end(), all.begin() + static_cast<std::ptrdiff_t>(rank * n));
    links.all_gather(std::as_writable_bytes(std::span(all)));
    ids = std::move(all);
  }
  return chunks;
}

// A call as every rank makes it.
Answer perform(RankLinks& links, Engine& engine, const Call& c, std::span<const Token> tokens,
               const Callbacks& on_rank_0) {
  const StopRequested stop = common_stop(links, on_rank_0.stop);
  switch (c.kind) {
    case Call::Kind::kPrefillContext:
      return engine.prefill_context(tokens, on_rank_0.progress, stop);
    case Call::Kind::kPrefillMethods:
      return engine.prefill_methods(on_rank_0.progress, stop);
    case Call::Kind::kGenerate:
      return engine.generate(c.method, c.count, c.seed, c.prompt_index, on_rank_0.on_tokens, stop);
    case Call::Kind::kSetGammas:
      engine.set_gammas(c.gammas);
      return {};
    case Call::Kind::kSetBudget:
      engine.set_budget(c.count);
      return {};
    case Call::Kind::kPassMs:
      return engine.pass_ms(c.pass, c.rows, c.repetitions);
    case Call::Kind::kTop2Margin:
      return engine.top2_margin(tokens);
    case Call::Kind::kProbsAfterPrompt:
      return engine.probs_after_prompt();
    case Call::Kind::kSelectedChunks:
      return gather_chunks(links, engine.selected_chunks());
    case Call::Kind::kBuild:
    case Call::Kind::kDrop:
    case Call::Kind::kLoad:
    case Call::Kind::kEnd:
      break;
  }
  TF_CHECK(false, "call {}", static_cast<int>(c.kind));
}

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

void announce(RankLinks& links, Call call, std::span<const Token> tokens = {}) {
  call.tokens = static_cast<std::int64_t>(tokens.size());
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
 public:
  LeadingEngine(RankLinks& links, const BuildEngine& build, std::int64_t max_prompt,
                std::int64_t max_generated)
      : links_(links) {
    announce(links_,
             {.kind = Call::Kind::kBuild, .count = max_generated, .max_prompt = max_prompt});
    local_ = guarded(links_, [&] { return build(max_prompt, max_generated); });
  }
  ~LeadingEngine() override {
    try {
      announce(links_, {.kind = Call::Kind::kDrop});
      local_.reset();
      // No device is then at work for another rank's, and each may go.
      links_.meet(links_.timeout());
    } catch (const Error&) {
      // The links have ended, and with them the engines of other ranks.
    }
  }

  bool prefill_context(std::span<const Token> prompt, const PrefillProgress& progress,
                       const StopRequested& stop) override {
    return make<bool>({.kind = Call::Kind::kPrefillContext}, prompt, {progress, {}, stop});
  }
  PrefillMetrics prefill_methods(const PrefillProgress& progress,
                                 const StopRequested& stop) override {
    return make<PrefillMetrics>({.kind = Call::Kind::kPrefillMethods}, {}, {progress, {}, stop});
  }
  RunMetrics generate(Method method, std::int64_t count, std::uint64_t seed,
                      std::uint32_t prompt_index, const TokenCallback& on_tokens,
                      const StopRequested& stop) override {
    Call call{.kind = Call::Kind::kGenerate, .method = method, .prompt_index = prompt_index};
    call.seed = seed;
    call.count = count;
    return make<RunMetrics>(call, {}, {{}, on_tokens, stop});
  }
  void set_gammas(const Gammas& gammas) override {
    make<std::monostate>({.kind = Call::Kind::kSetGammas, .gammas = gammas}, {}, {});
  }
  void set_budget(std::int64_t budget) override {
    make<std::monostate>({.kind = Call::Kind::kSetBudget, .count = budget}, {}, {});
  }
  double pass_ms(Pass pass, int rows, int repetitions) override {
    return make<double>(
        {.kind = Call::Kind::kPassMs, .pass = pass, .rows = rows, .repetitions = repetitions}, {},
        {});
  }
  double top2_margin(std::span<const Token> generated) override {
    return make<double>({.kind = Call::Kind::kTop2Margin}, generated, {});
  }
  std::vector<float> probs_after_prompt() override {
    return make<std::vector<float>>({.kind = Call::Kind::kProbsAfterPrompt}, {}, {});
  }
  ChunksOfLayers selected_chunks() override {
    return make<ChunksOfLayers>({.kind = Call::Kind::kSelectedChunks}, {}, {});
  }

 private:
  template <class T>
  T make(const Call& call, std::span<const Token> tokens, const Callbacks& callbacks) {
    announce(links_, call, tokens);
    return std::get<T>(
        guarded(links_, [&] { return perform(links_, *local_, call, tokens, callbacks); }));
  }

  RankLinks& links_;
  std::unique_ptr<Engine> local_;
};

}  // namespace

bool RankBackend::is_unrecorded(const PassKey& key) const {
  const auto here = static_cast<std::uint8_t>(ForwardingBackend::is_unrecorded(key) ? 1 : 0);
  const std::vector<std::uint8_t> ranks = links_.gather_values(here);
  return std::find(ranks.begin(), ranks.end(), 1) != ranks.end();
}

Token RankBackend::do_sample(TensorView probs, const DrawKey& key, std::int64_t position,
                             Acceptance acceptance) {
  Token token = 0;
  if (links_.shard().rank == 0) {
    token = ForwardingBackend::do_sample(probs, key, position, acceptance);
  }
  links_.broadcast_value(token);
  return token;
}

VerifyResult RankBackend::do_verify(TensorView p, TensorView q, std::span<const Token> tokens,
                                    const DrawKey& key, std::int64_t position,
                                    const VerifyRule& rule) {
  VerifyResult result;
  if (links_.shard().rank == 0) {
    result = ForwardingBackend::do_verify(p, q, tokens, key, position, rule);
  }
  links_.broadcast_value(result);
  return result;
}

std::unique_ptr<Engine> lead(RankLinks& links, const BuildEngine& build, std::int64_t max_prompt,
                             std::int64_t max_generated) {
  return std::make_unique<LeadingEngine>(links, build, max_prompt, max_generated);
}

void follow(RankLinks& links, const BuildEngine& build, const std::function<LoadTimes()>& load) {
  std::unique_ptr<Engine> engine;
  std::vector<Token> tokens;
  for (;;) {
    const Call call = receive(links, tokens);
    if (call.kind == Call::Kind::kEnd) return;
    if (call.kind == Call::Kind::kDrop) {
      engine.reset();
      links.meet(links.timeout());
      continue;
    }
    if (call.kind == Call::Kind::kLoad) {
      links.gather_values(load ? load() : LoadTimes{});
      continue;
    }
    try {
      guarded(links, [&] {
        if (call.kind == Call::Kind::kBuild) {
          engine = build(call.max_prompt, call.count);
        } else {
          perform(links, *engine, call, tokens, {});
        }
      });
    } catch (const Error& e) {
      if (!is_on_all_ranks(e)) throw;  // rank 0 has it too, and goes on
    }
  }
}

std::vector<LoadTimes> gather_load(RankLinks& links, const LoadTimes& own) {
  announce(links, {.kind = Call::Kind::kLoad});
  return links.gather_values(own);
}

void dismiss(RankLinks& links) { announce(links, {.kind = Call::Kind::kEnd}); }

}  // namespace triforce
