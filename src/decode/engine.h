// What is asked of a context and the methods over it, behind one interface: a run on one rank, or
// on several (ranks/rank_engine.h).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "triforce/decode.h"

namespace triforce {

class Engine {
 public:
  virtual ~Engine() = default;

  // Context::prefill and Methods::prefill.
  virtual bool prefill_context(std::span<const Token> prompt, const PrefillProgress& progress,
                               const StopRequested& stop) = 0;
  virtual PrefillMetrics prefill_methods(const PrefillProgress& progress,
                                         const StopRequested& stop) = 0;
  // The methods of that name.
  virtual RunMetrics generate(Method method, std::int64_t count, std::uint64_t seed,
                              std::uint32_t prompt_index, const TokenCallback& on_tokens,
                              const StopRequested& stop) = 0;
  virtual void set_gammas(const Gammas& gammas) = 0;
  virtual void set_budget(std::int64_t budget) = 0;
  virtual double pass_ms(Pass pass, int rows, int repetitions) = 0;
  virtual double top2_margin(std::span<const Token> generated) = 0;
  virtual std::vector<float> probs_after_prompt() = 0;
  // The chunk ids [Hkv, n] that the retrieval cache holds of each layer of the whole target, none
  // of a dense one; empty if no method uses that cache.
  virtual std::vector<std::vector<std::int32_t>> selected_chunks() = 0;
};

// What Context::shape_of() needs to know of the methods: the memory that they lend it.
Context::Shape context_shape(const Backend& backend, const ModelWeights& target,
                             const SpeculationOptions& options, const RunShape& run);

// Methods over a context that others may be built over later: whoever comes first for a prompt
// calls prefill_context(), the others prefill_methods() alone. One of them at a time, and each
// lends the memory that the context's shape says. Throws as Methods.
std::unique_ptr<Engine> make_engine(std::shared_ptr<Context> context, const ModelWeights* draft,
                                    const SpeculationOptions& options,
                                    std::span<const Method> methods);

// A context and methods over it. `draft` may be null if no method uses the drafter. Throws as they
// do. On one of several ranks selected_chunks() has those of its own KV heads.
std::unique_ptr<Engine> make_engine(Backend& backend, const ModelWeights& target,
                                    const ModelWeights* draft, const SpeculationOptions& options,
                                    const RunShape& run, Communicator* ranks = nullptr);

}  // namespace triforce
