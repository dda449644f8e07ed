// A pass of the table as Methods run it: a model over the cache that its kind makes. One file a
// kind (full_pass.cpp, retrieval_pass.cpp, streaming_pass.cpp) says how the cache is made, planned
// and filled after a prompt, and what a pass over it reads.
//
//   pass_cache.cpp   which kind each pass of triforce/pass.h has
//   methods.cpp      makes the passes that its methods' chains name, and composes them
//   plan.cpp         plans the same ones
#pragma once
#include <memory>

#include "decode/plan_sums.h"
#include "decode/sizes.h"
#include "model/full_cache.h"
#include "triforce/speculate.h"

namespace triforce {

// What the cache of a pass is made with. All outlive it.
struct PassSetup {
  Pass pass;
  Context& context;             // its full cache and its prompt
  LlamaModel& model;            // of spec_of(pass).net
  const ModelWeights& weights;  // of the model
  const SpeculationOptions& options;
  const MethodSizes& sizes;
  PhaseTimer& timer;
};

// Feeds the prompt in appends of the cache's size, drops its last token again, which decoding feeds
// first on the batch-invariant path, and marks that state. The observer, if any, sees the last
// pass. False: a stop was requested. Throws as LlamaModel::prefill().
bool fill_cache(LlamaModel& model, KvCache& cache, std::span<const Token> prompt, Pass pass,
                LayerObserver* last_pass_observer, const PrefillProgress& progress,
                const StopRequested& stop);

class PassCache {
 public:
  explicit PassCache(const PassSetup& setup) : s_(setup) {}
  virtual ~PassCache() = default;
  PassCache(const PassCache&) = delete;
  PassCache& operator=(const PassCache&) = delete;

  virtual KvCache& cache() = 0;
  // Whether it is filled at all: the full cache holds the prompt already.
  virtual bool is_filled() const { return true; }
  // Follows the context's prompt, of which the full cache holds all but the last token, and marks
  // that state. False: a stop was requested. Throws as LlamaModel::forward().
  virtual bool fill(const PrefillProgress& progress, const StopRequested& stop);
  // A generation begins from the marked state; the prompt is `prefix` and one more token.
  virtual void start(std::span<const Token> /*prefix*/) {}
  // What the i-th pass of a method's chain asks for probabilities. `observer` sees its passes;
  // null: nothing does.
  virtual std::unique_ptr<Scorer> scorer(const MethodSpec& method, int i, LayerObserver* observer);
  // One pass over tokens that follow the prompt, for its time. The cache is then to be truncated.
  virtual void run(std::span<const Token> tokens);

  // What sees the full cache's passes in methods whose chain has this pass; null: nothing does.
  virtual LayerObserver* full_observer() { return nullptr; }
  // What the full cache did with tokens of a method whose chain has this pass.
  virtual void report_round(std::int64_t /*accepted*/, std::int64_t /*tested*/) {}
  // Memory that is free while the context's prompt is processed; empty: none.
  virtual TensorView lent() const { return {}; }
  // Its cache, where that does not hold every token; null: it does.
  virtual const StoredCache* small() const { return nullptr; }
  // The cache whose chunks are selected; null: none are.
  virtual const RetrievalCache* selected() const { return nullptr; }

 protected:
  PassSetup s_;
};

// How the caches of one kind are made and planned.
struct PassKind {
  // Throws Error(kResources).
  std::unique_ptr<PassCache> (*make)(const PassSetup& setup);
  // Adds what make() takes, and what a pass reads.
  void (*plan)(PlanSums& sums, Pass pass);
};
extern const PassKind kFullKind, kRetrievalKind, kStreamingKind;
const PassKind& kind_of(Pass pass);

}  // namespace triforce
