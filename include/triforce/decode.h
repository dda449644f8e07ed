// From models and options to tokens: a prompt in the target's full cache (Context), the methods
// that decode from it (Methods), and the loop they share (decode).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "triforce/backend.h"
#include "triforce/kv_cache.h"
#include "triforce/method.h"
#include "triforce/metrics.h"
#include "triforce/model.h"
#include "triforce/speculate.h"
#include "triforce/synthetic_acceptance.h"
#include "triforce/weights.h"

namespace triforce {

// Max tokens a level is asked to propose at once.
inline constexpr int kMaxGamma = 63;
// The full cache has room for rounds of any gammas up to this one, or of any at all. Its capacity
// decides how CUDA splits the keys, and so bits: gammas change none as long as none is larger.
inline constexpr int kUsualGamma = 31;
constexpr bool are_usual(const Gammas& g) {
  return std::max(g.gamma, g.inner_gamma) <= kUsualGamma;
}
// Max rows of a pass that proposes or verifies; what has more is several passes.
constexpr int max_exact_rows(const Gammas& g, int lanes) {
  return are_usual(g) && lanes == 1 ? kMaxBatchInvariantRows : 4 * kMaxBatchInvariantRows;
}
// Max tokens of a prompt, of a generation, and of a cache's budget.
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
// Max tokens per chunk of the retrieval cache.
inline constexpr int kMaxChunk = 4096;
inline constexpr int kMaxKeyRank = 65536;

// What the drafter sees of the sequence, in --draft-cache-budget tokens.
enum class DraftCache : std::uint8_t {
  kStreaming,  // a streaming cache that it adds to
  // The most recent tokens, read anew at positions from 0 for every token that it drafts, so that
  // their keys and values depend on nothing before them (the sliding window with re-computation of
  // arXiv 2309.17453, section 3.1, and of 2404.11912, figure 2a). For analysis.
  kWindow,
  // The chunks that the target's last verification attended to most, and the most recent tokens
  // (cross-model retrieval of SpecExtend, arXiv 2505.20776).
  kRetrieval
};
constexpr auto names_of(DraftCache /*any*/) {
  return std::array{"streaming", "window", "retrieval"};
}

// Looks up what followed the longest part of the sequence's end that stood there before.
struct Lookup {
  std::int64_t longest = 0;  // tokens of that part at most; 0: any number
};

struct SpeculationOptions {
  int gamma = 6;        // tokens asked per outer verification, 1..kMaxGamma (paper: gamma2)
  int inner_gamma = 1;  // tokens asked per inner verification, 1..kMaxGamma (paper: gamma1)
  // Draft trees that are asked for instead, of 2 to kMaxProposals nodes, with branches.
  std::optional<DraftTree> tree, inner_tree;
  std::int64_t budget = 4096;       // tokens: retrieval cache, and the target's streaming cache
  std::int64_t least_budget = 0;    // tokens: that set_budget() is asked for; 0: never asked
  int chunk_size = 8;               // tokens
  int dense_layers = 0;             // first layers of those two that read the full cache instead
  std::int64_t draft_budget = 256;  // tokens: the drafter's cache, sinks included
  DraftCache draft_cache = DraftCache::kStreaming;
  Lookup lookup;
  RebuildPolicy rebuild;
  Selection selection = Selection::kMeanKey;
  // Above 0: the rank of the form that keys of selected chunks are rebuilt from, and chunks of each
  // KV head that keep theirs (ShadowKV, arXiv 2410.21465).
  int key_rank = 0, outlier_chunks = 0;
  KvBits draft_kv = KvBits::kInt4;  // of the target's quantised cache
  // Of the weights that passes of the target over small caches multiply with.
  Quantisation draft_weights = Quantisation::kNone;
  SamplingParams sampling;
  Acceptance acceptance = Acceptance::kSpeculative;
  Correction inner_correction = Correction::kResidual;
  std::optional<SyntheticAcceptance> synthetic;
  bool ignore_eos = false;
  bool measure_recovery = false;  // by the first row of each verification; changes times alone

  Gammas gammas() const { return {gamma, inner_gamma}; }
  // What a level of a method asks of the one below for each verification.
  DraftTree draft_of(const MethodSpec& method, int level) const {
    const std::optional<DraftTree>& shape = method.is_outermost(level) ? tree : inner_tree;
    return shape ? *shape : DraftTree::chain(method.step(level, gammas()));
  }
};

// Whether all drafts of a method are chains.
inline bool drafts_chains(const MethodSpec& method, const SpeculationOptions& options) {
  for (int l = 0; l < method.levels(); ++l) {
    if (!options.draft_of(method, l).is_chain()) return false;
  }
  return true;
}

// How large the prompts and generations of a run may become, and by which methods.
struct RunShape {
  std::int64_t max_prompt = 0;     // tokens
  std::int64_t max_generated = 0;  // tokens
  std::vector<Method> methods;     // the baseline may be missing; it is always possible
  KvHomes homes = {};              // of each full cache's KV heads
  int lanes = 1;                   // sequences that are decoded together, up to kMaxSequences
  // The longest and the shortest max_prompt of the runs over one context, this one's among them;
  // 0: it has the context alone.
  std::int64_t longest_prompt = 0, shortest_prompt = 0;

  // The run of these whose context serves them all.
  RunShape longest() const {
    RunShape run = *this;
    run.max_prompt = std::max(max_prompt, longest_prompt);
    return run;
  }
};

// What rounds of some options need of a context. That of any usual gammas, and of trees as large as
// fit beside them, is the same.
struct RoundRoom {
  int tokens = 0;      // half of what a cache may hold beyond what is final
  int exact_rows = 0;  // max rows of a pass that proposes or verifies
  bool operator==(const RoundRoom&) const = default;
};
RoundRoom room_for(const SpeculationOptions& options, std::span<const Method> methods, int lanes);

// Called with tokens of a lane as they become final, and who produced each: 0 the proposer, l + 1
// level l.
using TokenCallback =
    std::function<void(int lane, std::span<const Token>, std::span<const std::uint8_t>)>;
using PromptTokens = std::span<const Token>;
// Tokens of the prompts of all lanes that such passes have processed so far, of `total`.
using PrefillProgress = std::function<void(Pass pass, std::int64_t done, std::int64_t total)>;
// Asked before every pass of a prefill and every round of a generation; true ends it there. May be
// empty: never.
using StopRequested = std::function<bool()>;

// Tokens of one prefill pass on the CPU, and of perplexity.
inline constexpr std::int64_t kPrefillChunk = 512;
// Tokens of one pass into a streaming cache.
inline constexpr std::int64_t kStreamingChunk = 128;

// Tokens of prompts that a prefill did not process.
struct PromptsKept {
  std::int64_t kept = 0;    // the lane had them already
  std::int64_t copied = 0;  // from another lane, which has the same prompt
};

struct ContextSizes;

// One prompt for each lane, sequences that are decoded together: the target's full cache of a lane
// holds all of its prompt but the last token, which decoding feeds first, so that every token that
// is verified comes from the same batch-invariant path. Keeps the rotated query of the last token
// in every layer, from which a retrieval cache can select chunks at any time. Methods are built
// over a context as often as wanted; one prefill serves them all. Calls throw as
// LlamaModel::forward().
class Context {
 public:
  struct Shape {
    int lanes = 1;
    std::int64_t max_prompt = 0;  // tokens
    std::int64_t capacity = 0;    // tokens of a lane: prompt, generated, and rounds
    std::int64_t max_round = 0;   // tokens of a lane's round
    int exact_rows = 0;           // RoundRoom's
    KvHomes homes = {};           // of each lane
    // Memory that methods lend for as long as a prompt is processed. The residual stream of one
    // that is a single pass takes it if it is enough; the context cannot do without it then.
    std::int64_t lent_bytes = 0;

    bool operator==(const Shape&) const = default;
  };
  // For rounds of these options and all that have the same room (room_for()). lent_bytes counts
  // where a prompt is a single pass, as far KV heads need. Throws Error(kUsage) for lengths out of
  // range.
  static Shape shape_of(const RunShape& run, const SpeculationOptions& options = {},
                        std::int64_t lent_bytes = 0);

  // Allocates the full caches and the target's activations; backend, weights and ranks outlive it.
  // `ranks` as for LlamaModel: then every rank has a context and makes the same calls of it and of
  // its methods. Throws Error(kResources).
  Context(Backend& backend, const ModelWeights& target, const Shape& shape,
          Communicator* ranks = nullptr);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Serves runs of `shape` from here on, which is no larger than its own in anything and differs in
  // max_prompt and capacity alone: what is computed then has the bits that a context of that shape
  // gives it. To be called while there are no methods. Prompts stay.
  void set_room(const Shape& shape);

  // Processes these prompts, one a lane, of 2..max_prompt tokens each, instead of the last ones. A
  // prompt that begins as the lane's last one goes on from there, from the last whole pass of what
  // they have in common; one that an earlier lane has is copied. nullopt, with no prompts: a stop
  // was requested. Throws Error(kBadInput, "TokenRange"), and has no prompts then, either.
  std::optional<PromptsKept> prefill(std::span<const PromptTokens> prompts,
                                     const PrefillProgress& progress, const StopRequested& stop);

  // Of Shape::lent_bytes or more, by Methods; empty: no longer.
  void lend(TensorView memory);

  Backend& backend() { return backend_; }
  const ModelWeights& weights() const { return weights_; }
  LlamaModel& model() { return model_; }
  int lanes() const { return shape_.lanes; }
  FullCache& cache(int lane) { return *lane_at(lane).cache; }
  std::span<const Token> prompt(int lane) const { return lane_at(lane).prompt; }     // empty: none
  TensorView last_queries(int lane) const { return lane_at(lane).queries->view(); }  // [L, H, d]

 private:
  Context(Backend& backend, const ModelWeights& target, const Shape& shape,
          const ContextSizes& sizes, Communicator* ranks);

  struct Lane {
    std::unique_ptr<FullCache> cache;
    std::unique_ptr<LastQueries> queries;
    std::vector<Token> prompt;
  };
  Lane& lane_at(int lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  const Lane& lane_at(int lane) const { return lanes_[static_cast<std::size_t>(lane)]; }

  // Forgets a lane's prompt, and what follows the last whole pass of the tokens that it has in
  // common with this one. Returns how many tokens are left.
  std::int64_t keep_beginning(Lane& lane, PromptTokens prompt);

  Backend& backend_;
  const ModelWeights& weights_;
  Shape shape_;
  std::vector<Lane> lanes_;
  LlamaModel model_;
  Lease exact_;
};

// A context and the methods over it: on one rank (Methods), or on several (ranks/rank_engine.h).
class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::optional<PromptsKept> prefill_context(std::span<const PromptTokens> prompts,
                                                     const PrefillProgress& progress,
                                                     const StopRequested& stop) = 0;  // Context's
  // Follows the context's prompts in every small cache. The full cache's time is left 0. To be
  // called after every Context::prefill().
  virtual PrefillMetrics prefill_methods(const PrefillProgress& progress,
                                         const StopRequested& stop) = 0;
  // Of later generations: the first so many lanes take part, 1 to all of them, as at the beginning.
  virtual void set_lanes(int lanes) = 0;
  // Rolls the caches back to the prompts and generates `count` tokens of each lane, or up to an
  // end-of-sequence token, or to where a stop was requested. (seed, first_prompt + lane) name the
  // random numbers of a lane, whose tokens and counters do not depend on the others. Times of a
  // lane are from the common begin to its end. Before it, every pass that rounds can have is
  // recorded, where the backend does that and has not yet. A lane ends where probabilities that it
  // needs are not finite (RunMetrics::failed_at).
  virtual std::vector<RunMetrics> generate(Method method, std::int64_t count, std::uint64_t seed,
                                           std::uint32_t first_prompt,
                                           const TokenCallback& on_tokens,
                                           const StopRequested& stop) = 0;
  // Changes the gammas of later generations; at most those given at construction, at least 0:
  // nothing is asked of what is below, and the level draws from its own pass.
  virtual void set_gammas(const Gammas& gammas) = 0;
  // Changes the outer draft of later generations, where options.tree of construction is a tree: to
  // one of at most as many nodes and levels. nullopt: nothing is asked for, as with a gamma of 0.
  virtual void set_tree(const std::optional<DraftTree>& tree) = 0;
  // Changes the budget, in tokens, within [options.least_budget, options.budget] of construction:
  // caches and gammas are then as those of methods constructed with it. prefill_methods() is to be
  // called after it. Throws as the constructor; after an error it can only be destroyed.
  virtual void set_budget(std::int64_t budget) = 0;
  // Milliseconds of one pass over `rows` new tokens of each lane, 1..max_exact_rows(), the minimum
  // of `repetitions`; caches are left at the prompt. Lanes and tokens that are too many for one
  // pass are several.
  virtual double pass_ms(Pass pass, int rows, int repetitions) = 0;
  // How close the target's choice was after a lane's prompt and `generated`: its largest logit
  // minus the second largest. Leaves the caches at the prompt.
  virtual double top2_margin(int lane, std::span<const Token> generated) = 0;
  // How far a method where nothing verifies is from the full cache, before each token that it
  // generated behind the lane's prompt: the sum over all ids of p log(p / q), in nats, p being what
  // the full cache and q what the method's cache says, at temperature 1. Both are fed these tokens.
  // Infinite where a logit is not finite. The caches are rolled back.
  virtual std::vector<double> divergence(Method method, int lane,
                                         std::span<const Token> generated) = 0;
  // What the baseline draws a lane's first token after the prompt from: [V] probabilities, after
  // temperature, top-k and top-p. Leaves the caches at the prompt. Throws Error(kNumeric).
  virtual std::vector<float> probs_after_prompt(int lane) = 0;
  // The chunk ids [Hkv, n] that the lane's retrieval cache holds of each layer of the whole target,
  // none of a dense one; empty if no method uses that cache.
  virtual std::vector<std::vector<std::int32_t>> selected_chunks(int lane) = 0;
};

// Methods over a context that others may be built over later: the caches, proposers and
// probabilities of one set of options. Whoever comes first for a prompt calls prefill_context(),
// the others prefill_methods() alone. One of them is used at a time, and each lends the memory that
// the context's shape says.
class Methods final : public Engine {
 public:
  // Allocates the caches and buffers that `methods` need besides the context's. Draft may be null
  // if no method uses the drafter. Throws Error(kUsage) for options that do not fit together or
  // with the models, and Error(kResources).
  Methods(std::shared_ptr<Context> context, const ModelWeights* draft,
          const SpeculationOptions& options, std::span<const Method> methods);
  ~Methods() override;
  Methods(const Methods&) = delete;
  Methods& operator=(const Methods&) = delete;

  std::optional<PromptsKept> prefill_context(std::span<const PromptTokens> prompts,
                                             const PrefillProgress& progress,
                                             const StopRequested& stop) override {
    return context_->prefill(prompts, progress, stop);
  }
  PrefillMetrics prefill_methods(const PrefillProgress& progress,
                                 const StopRequested& stop) override;
  std::vector<RunMetrics> generate(Method method, std::int64_t count, std::uint64_t seed,
                                   std::uint32_t first_prompt, const TokenCallback& on_tokens,
                                   const StopRequested& stop) override;
  void set_lanes(int lanes) override;
  void set_gammas(const Gammas& gammas) override;
  void set_tree(const std::optional<DraftTree>& tree) override;
  void set_budget(std::int64_t budget) override;
  double pass_ms(Pass pass, int rows, int repetitions) override;
  double top2_margin(int lane, std::span<const Token> generated) override;
  std::vector<double> divergence(Method method, int lane,
                                 std::span<const Token> generated) override;
  std::vector<float> probs_after_prompt(int lane) override;
  std::vector<std::vector<std::int32_t>> selected_chunks(int lane) override;
  // nullptr: no method uses one.
  const RetrievalCache* retrieval_cache(int lane) const;

 private:
  struct Impl;
  std::shared_ptr<Context> context_;
  const ModelWeights* draft_;
  SpeculationOptions options_;  // as constructed
  int lanes_;                   // that take part
  std::vector<Method> methods_;
  std::unique_ptr<Impl> impl_;
};

// The shape of the context of a run, or of all that share it (RunShape::longest()): it knows of the
// methods what memory they lend. Throws Error(kUsage) for options that do not fit together.
Context::Shape context_shape(const Backend& backend, const ModelWeights& target,
                             const SpeculationOptions& options, const RunShape& run);

// A context and methods over it. `draft` may be null if no method uses the drafter. Throws as they
// do. On one of several ranks selected_chunks() has those of its own KV heads.
std::unique_ptr<Engine> make_engine(Backend& backend, const ModelWeights& target,
                                    const ModelWeights* draft, const SpeculationOptions& options,
                                    const RunShape& run, Communicator* ranks = nullptr);

// What ended a lane, in words (RunMetrics::failed_at).
std::string not_finite(std::int64_t position);
// Called when a lane has ended.
using LaneEnded = std::function<void(int lane, RunMetrics& of_lane)>;

// The decode loop. `root` has been started; its first `lanes` lanes go on together in rounds, each
// until it has `count` tokens or a token of `eos`, it fails, or a stop is requested. Fills tokens,
// origins, rounds, levels, failed_at and the two flags of each lane's result; times are the
// caller's business, when a lane has ended.
std::vector<RunMetrics> decode(Proposer& root, int lanes, std::int64_t count,
                               std::span<const Token> eos, const TokenCallback& on_tokens,
                               const StopRequested& stop, const LaneEnded& on_end);

}  // namespace triforce
