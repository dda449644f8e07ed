// A pass of the table as Methods run it: a model over the cache that its kind makes, or no model.
// One file a kind (full_pass.cpp, retrieval_pass.cpp, streaming_pass.cpp, quantised_pass.cpp,
// lookup_pass.cpp) says how what it keeps is made, planned and filled after a prompt, and what a
// pass reads.
//
//   pass_cache.cpp   which kind each pass of triforce/pass.h has
//   methods.cpp      makes the passes that its methods' chains name, and composes them
//   plan.cpp         plans the same ones
#pragma once
#include <memory>
#include <vector>

#include "decode/plan_sums.h"
#include "decode/sizes.h"
#include "model/full_cache.h"
#include "triforce/speculate.h"

namespace triforce {

// What a pass is made with. All outlive it.
struct PassSetup {
  Pass pass;
  Context& context;             // the full caches and prompts of its lanes
  LlamaModel& model;            // of spec_of(pass).net; the target's for no model
  const ModelWeights& weights;  // of the model
  const SpeculationOptions& options;
  const MethodSizes& sizes;
  PhaseTimer& timer;
};

// Feeds what the cache lacks of the prompt in appends of its size, drops the last token again,
// which decoding feeds first on the batch-invariant path, and marks that state. The observer, if
// any, sees the last pass. False: a stop was requested. Throws as LlamaModel::prefill().
bool fill_cache(LlamaModel& model, KvCache& cache, std::span<const Token> prompt, Pass pass,
                LayerObserver* last_pass_observer, const PrefillProgress& progress,
                const StopRequested& stop);

// What a lane is given of the progress of all, which have `total` tokens: `before` of them are
// those of the lanes before it. `progress` outlives it and may be empty.
PrefillProgress progress_of_lane(const PrefillProgress& progress, std::int64_t before,
                                 std::int64_t total);

// What a pass keeps of each lane, and what methods ask of it.
class PassRunner {
 public:
  explicit PassRunner(const PassSetup& setup) : s_(setup) {}
  virtual ~PassRunner() = default;
  PassRunner(const PassRunner&) = delete;
  PassRunner& operator=(const PassRunner&) = delete;

  int lanes() const { return s_.context.lanes(); }
  // Whether it is filled at all: the full caches hold the prompts already.
  virtual bool is_filled() const { return true; }
  // Follows the lane's prompt, of which the full cache holds all but the last token, and marks that
  // state. False: a stop was requested. Throws as LlamaModel::forward().
  virtual bool fill(int lane, const PrefillProgress& progress, const StopRequested& stop) = 0;
  virtual void rewind(int lane) = 0;  // to the marked state
  // A generation begins from the marked state; the lane's prompt is `prefix` and one more token.
  virtual void start(int /*lane*/, std::span<const Token> /*prefix*/) {}
  // What proposes at the bottom of a method's chain, never asked for more than `asked`. Each lane's
  // passes are seen by its observer; null: nothing sees them.
  virtual std::unique_ptr<Proposer> proposer(const MethodSpec& method, const DraftTree& asked,
                                             std::span<LayerObserver* const> observers) = 0;
  // What the i-th pass of a method's chain asks for probabilities. Throws Error(kInternal) for a
  // pass without a model.
  virtual std::unique_ptr<Scorer> scorer(const MethodSpec& method, int i,
                                         std::span<LayerObserver* const> observers);
  // Feeds a token of a method where nothing verifies, which is final then. Returns the logits [1,
  // V] of the next one, until the model's next pass. Throws Error(kInternal) for a pass without a
  // model.
  virtual TensorView feed_unverified(int lane, Token token);
  // A pass of each lane over tokens that follow the prompt, for its time; nothing is kept.
  virtual void run(std::span<const Token> tokens) = 0;

  // What sees the lane's full cache's passes in methods whose chain has this pass; null: nothing.
  virtual LayerObserver* full_observer(int /*lane*/) { return nullptr; }
  // What the full cache did with tokens of a method whose chain has this pass.
  virtual void report_round(int /*lane*/, std::int64_t /*accepted*/, std::int64_t /*tested*/) {}
  // Memory that is free while the context's prompts are processed; empty: none.
  virtual TensorView lent() const { return {}; }
  // The lane's cache, where that does not hold every token; null: it does.
  virtual const StoredCache* small(int /*lane*/) const { return nullptr; }
  // The lane's cache whose chunks are selected; null: none are.
  virtual const RetrievalCache* selected(int /*lane*/) const { return nullptr; }

 protected:
  Precision precision() const {
    return drafts_by_copies(s_.pass, s_.options) ? Precision::kDraft : Precision::kOwn;
  }
  PassSetup s_;
};

// A model over a KV cache for each lane.
class PassCache : public PassRunner {
 public:
  using PassRunner::PassRunner;
  virtual KvCache& cache(int lane) = 0;
  bool fill(int lane, const PrefillProgress& progress, const StopRequested& stop) override;
  // The lane's cache, where that takes what it keeps from the full cache. Null: it does not. Where
  // nothing verifies, its own rows then become the full cache's first.
  virtual StoredCache* taking(int /*lane*/) { return nullptr; }
  // Does that with its tokens before `length`.
  void hand_over(int lane, std::int64_t length);
  void rewind(int lane) override { cache(lane).rewind(); }
  TensorView feed_unverified(int lane, Token token) override;
  std::unique_ptr<Proposer> proposer(const MethodSpec& method, const DraftTree& asked,
                                     std::span<LayerObserver* const> observers) override;
  std::unique_ptr<Scorer> scorer(const MethodSpec& method, int i,
                                 std::span<LayerObserver* const> observers) override;
  void run(std::span<const Token> tokens) override;

 protected:
  // Its caches with what observes them.
  std::vector<LaneCache> lane_caches(std::span<LayerObserver* const> observers);
};

// Makes what each lane has of a pass: make(lane, memory), of memory that all lanes share.
template <class Make>
auto make_lanes(int lanes, const Make& make) {
  LaneMemory memory(lanes);
  std::vector<decltype(make(0, memory))> made;
  for (int l = 0; l < lanes; ++l) {
    if (l > 0) memory.next_lane();
    made.push_back(make(l, memory));
  }
  return made;
}

// How passes of one kind are made and planned.
struct PassKind {
  // Throws Error(kResources).
  std::unique_ptr<PassRunner> (*make)(const PassSetup& setup);
  // Adds what make() takes, and what a pass of one lane reads.
  void (*plan)(PlanSums& sums, Pass pass);
};
extern const PassKind kFullKind, kRetrievalKind, kStreamingKind, kQuantisedKind, kLookupKind;
const PassKind& kind_of(Pass pass);

}  // namespace triforce
