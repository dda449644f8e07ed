#include "decode/pass_cache.h"
#include "decode/timed_observer.h"
#include "decode/window_scorer.h"
#include "model/cross_model_cache.h"

namespace triforce {
namespace {

// Tokens that the cache of the pass keeps.
std::int64_t budget_of(Pass pass, const SpeculationOptions& o) {
  return spec_of(pass).has_budget ? o.budget : o.draft_budget;
}
// The cache that the pass has.
DraftCache cache_of(Pass pass, const SpeculationOptions& o) {
  return spec_of(pass).net == Net::kDrafter ? o.draft_cache : DraftCache::kStreaming;
}
// The drafter has no layers to share with the target's cache.
SharedLayers shared_layers(const PassSetup& s, int lane) {
  if (spec_of(s.pass).net == Net::kDrafter) return {};
  return {&s.context.cache(lane), s.options.dense_layers};
}

// A model over sinks and its most recent tokens (arXiv 2309.17453).
class StreamingPass : public PassCache {
 public:
  explicit StreamingPass(const PassSetup& s)
      : PassCache(s), caches_(make_lanes(s.context.lanes(), [&](int lane, LaneMemory& memory) {
          return std::make_unique<StreamingCache>(
              s.context.backend(), s.weights.config.layers, s.weights.shape().kv_heads,
              s.weights.shape().head_dim, budget_of(s.pass, s.options), kStreamingChunk,
              s.weights.dtype, shared_layers(s, lane), &memory);
        })) {}
  KvCache& cache(int lane) override { return *caches_[static_cast<std::size_t>(lane)]; }
  const StoredCache* small(int lane) const override {
    return caches_[static_cast<std::size_t>(lane)].get();
  }

 private:
  std::vector<std::unique_ptr<StreamingCache>> caches_;
};

// A model that reads its most recent tokens anew for every token: --draft-cache window. The caches
// hold rows during a pass alone.
class WindowPass final : public StreamingPass {
 public:
  using StreamingPass::StreamingPass;
  bool is_filled() const override { return false; }
  void start(int lane, std::span<const Token> prefix) override {
    for (WindowScorer* const scorer : scorers_) scorer->start(lane, prefix);
  }
  std::unique_ptr<Scorer> scorer(const MethodSpec& method, int i,
                                 std::span<LayerObserver* const> observers) override {
    auto scorer = std::make_unique<WindowScorer>(
        s_.context.backend(), s_.model, lane_caches(observers), budget_of(s_.pass, s_.options),
        s_.context.cache(0).capacity(), s_.options.sampling, s_.timer, method.phase(i));
    scorers_.push_back(scorer.get());
    return scorer;
  }
  // As many rows as are new: all of them are read anew.
  void run(std::span<const Token> /*tokens*/) override {
    const auto window = static_cast<std::size_t>(budget_of(s_.pass, s_.options));
    for (int l = 0; l < lanes(); ++l) {
      const std::span<const Token> prompt = s_.context.prompt(l);
      read_anew(s_.model, cache(l), prompt.last(std::min(prompt.size(), window)));
      cache(l).truncate(cache(l).committed());
    }
  }

 private:
  std::vector<WindowScorer*> scorers_;  // one a method
};

CrossModelCache::Target observed(const ModelConfig& target, const LocalShape& shape,
                                 std::int64_t capacity, int ranks) {
  return {target.layers, shape.heads, shape.kv_heads, shape.head_dim, capacity, ranks};
}

// Its choices count as selections, as those of a retrieval cache do.
class TimedCrossModelCache final : public CrossModelCache {
 public:
  template <class... Args>
  explicit TimedCrossModelCache(PhaseTimer& timer, Args&&... args)
      : CrossModelCache(std::forward<Args>(args)...), timer_(timer) {}

 protected:
  void choose() override {
    const PhaseTimer::Scope scope(timer_, Phase::kRebuild);
    CrossModelCache::choose();
  }

 private:
  PhaseTimer& timer_;
};

// The drafter over the chunks that the target attends to: --draft-cache retrieval.
class CrossModelPass final : public PassCache {
 public:
  explicit CrossModelPass(const PassSetup& s)
      : PassCache(s), lanes_(make_lanes(s.context.lanes(), [&](int lane, LaneMemory& memory) {
          return std::make_unique<Lane>(s, lane, memory);
        })) {}
  KvCache& cache(int lane) override { return lane_at(lane).cache; }
  LayerObserver* full_observer(int lane) override { return &lane_at(lane).observer; }
  const StoredCache* small(int lane) const override { return &lane_at(lane).cache; }

 private:
  struct Lane {
    Lane(const PassSetup& s, int lane, LaneMemory& memory)
        : cache(s.timer, s.context.backend(), s.weights.config.layers, s.weights.shape().kv_heads,
                s.weights.shape().head_dim, budget_of(s.pass, s.options), kStreamingChunk,
                s.weights.dtype, s.options.chunk_size,
                observed(s.context.weights().config, s.context.weights().shape(),
                         s.context.cache(lane).capacity(), s.context.weights().shard.size),
                s.context.model().ranks(), &memory),
          observer(cache, s.timer) {}
    TimedCrossModelCache cache;
    TimedObserver observer;
  };
  Lane& lane_at(int lane) const { return *lanes_[static_cast<std::size_t>(lane)]; }

  std::vector<std::unique_ptr<Lane>> lanes_;
};

std::unique_ptr<PassRunner> make_streaming(const PassSetup& setup) {
  switch (cache_of(setup.pass, setup.options)) {
    case DraftCache::kStreaming:
      return std::make_unique<StreamingPass>(setup);
    case DraftCache::kWindow:
      return std::make_unique<WindowPass>(setup);
    case DraftCache::kRetrieval:
      return std::make_unique<CrossModelPass>(setup);
  }
  return nullptr;
}

// Of the weights, what only logits need: all of the last layer after its keys and values, and the
// head.
std::int64_t logits_weight_bytes(const ModelConfig& c, DType dtype) {
  const std::int64_t width = std::int64_t{c.heads} * c.head_dim;
  return (c.hidden * width + 3 * c.hidden * c.intermediate + c.vocab * c.hidden) * size_of(dtype) +
         2 * c.hidden * size_of(DType::kF32);
}

// A streaming cache keeps a second copy, to return to the prompt.
void plan_streaming(PlanSums& sums, Pass pass) {
  const SpeculationOptions& o = sums.in().options;
  const Net net = spec_of(pass).net;
  const LocalShape shape = sums.shape_of(net);
  const std::int64_t rows = budget_of(pass, o) + kStreamingChunk;
  sums.add_of_lanes(MemTag::kKvStreaming, 2 * sums.kv_bytes(pass, rows));
  sums.lease_passes(shape, kStreamingChunk, sums.whole_granules(rows), shape.kv_heads, 0);
  sums.add_small_pass(pass, budget_of(pass, o), kStreamingChunk);
  if (cache_of(pass, o) == DraftCache::kRetrieval) {
    const CrossModelCache::Target target = observed(sums.in().target, sums.shape_of(Net::kTarget),
                                                    sums.held_tokens(), sums.in().shard.size);
    sums.add_of_lanes(MemTag::kKvStreaming, sums.kv_bytes(pass, target.capacity));
    sums.add_of_lanes(
        MemTag::kWorkspace,
        CrossModelCache::workspace_bytes(shape.kv_heads, budget_of(pass, o), o.chunk_size, target));
    sums.lease(CrossModelCache::scratch_shape(o.chunk_size, target));
  }
  if (cache_of(pass, o) == DraftCache::kWindow) {
    PassWork& bytes = sums.bytes_of(pass);
    bytes.part_rows = kStreamingChunk;
    bytes.only_last_weights = logits_weight_bytes(sums.config(net), sums.in().dtype);
  }
}

}  // namespace

const PassKind kStreamingKind = {make_streaming, plan_streaming};

}  // namespace triforce
