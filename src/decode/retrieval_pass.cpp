#include "decode/pass_cache.h"
#include "model/prompt_replay.h"
#include "model/retrieval_cache.h"

namespace triforce {
namespace {

// The retrieval cache as observer of the full cache's passes, its work timed as a phase.
class TimedObserver final : public LayerObserver {
 public:
  TimedObserver(RetrievalCache& cache, PhaseTimer& timer) : cache_(cache), timer_(timer) {}
  bool begin_pass(std::int64_t n, RowPath path) override { return cache_.begin_pass(n, path); }
  TensorView mass(int layer) override { return cache_.mass(layer); }
  int mass_chunk() const override { return cache_.mass_chunk(); }
  void on_range(int layer, TensorView q, const KvView& kv) override {
    const PhaseTimer::Scope scope(timer_, Phase::kRebuild);
    cache_.on_range(layer, q, kv);
  }

 private:
  RetrievalCache& cache_;
  PhaseTimer& timer_;
};

// The target over its retrieval cache where nothing verifies: its own rows become the full cache's,
// from which that cache takes and selects what it keeps.
class UnverifiedScorer final : public ModelScorer {
 public:
  UnverifiedScorer(const PassSetup& s, RetrievalCache& cache, LayerObserver* observer, Phase phase)
      : ModelScorer(s.context.backend(), s.model, cache, observer, s.options.sampling, s.timer,
                    phase),
        cache_(cache) {}
  void commit(std::int64_t length) override {
    cache_.hand_over(length);
    ModelScorer::commit(length);
  }

 private:
  RetrievalCache& cache_;
};

RetrievalCache::Options options_of(const SpeculationOptions& o) {
  return {o.budget, o.chunk_size, o.selection, o.rebuild, o.dense_layers};
}

// The target over the chunks that matter most (arXiv 2404.11912, section 4.1).
class RetrievalPass final : public PassCache {
 public:
  explicit RetrievalPass(const PassSetup& s)
      : PassCache(s),
        cache_(s.context.backend(), s.context.cache(), s.weights.config.layers,
               s.weights.shape().heads, s.weights.shape().kv_heads, s.weights.shape().head_dim,
               s.sizes.pending_rows, s.weights.dtype, options_of(s.options)),
        observer_(cache_, s.timer) {
    if (s.options.selection == Selection::kH2O) {
      replay_.emplace(s.context.backend(), s.context.cache(), s.weights.config.layers);
    }
  }
  KvCache& cache() override { return cache_; }
  bool fill(const PrefillProgress& progress, const StopRequested& stop) override {
    cache_.reset();
    if (replay_ && !replay(progress, stop)) return false;
    cache_.select_prompt(s_.context.last_queries(), s_.model.rope());
    cache_.mark();
    return true;
  }
  std::unique_ptr<Scorer> scorer(const MethodSpec& method, int i,
                                 LayerObserver* observer) override {
    if (method.is_lossless()) return PassCache::scorer(method, i, observer);
    return std::make_unique<UnverifiedScorer>(s_, cache_, observer, method.phase(i));
  }
  LayerObserver* full_observer() override { return &observer_; }
  void report_round(std::int64_t accepted, std::int64_t tested) override {
    cache_.report_round(accepted, tested);
  }
  TensorView lent() const override { return cache_.memory(); }
  const StoredCache* small() const override { return &cache_; }
  const RetrievalCache* selected() const override { return &cache_; }

 private:
  // Shows the cache the attention of every token of the prompt. False: a stop was requested.
  bool replay(const PrefillProgress& progress, const StopRequested& stop) {
    const std::span<const Token> prefix = s_.context.prompt().first(s_.context.prompt().size() - 1);
    const auto total = static_cast<std::int64_t>(prefix.size());
    replay_->reset();
    for (auto rest = prefix; !rest.empty();) {
      if (stop && stop()) return false;
      const auto n = std::min(rest.size(), static_cast<std::size_t>(replay_->max_append()));
      s_.model.forward(rest.first(n), *replay_, Logits::kNone, &cache_);
      rest = rest.subspan(n);
      if (progress) progress(s_.pass, replay_->length(), total);
    }
    return true;
  }

  RetrievalCache cache_;
  TimedObserver observer_;
  std::optional<PromptReplay> replay_;  // if all attention in the prompt matters
};

std::int64_t selection_bytes(int layers, const LocalShape& t, const SpeculationOptions& o,
                             std::int64_t capacity, DType activation) {
  const std::int64_t ids = std::int64_t{layers} * t.kv_heads * (o.budget / o.chunk_size);
  const std::int64_t chunks = std::max<std::int64_t>(1, capacity / o.chunk_size);
  return 2 * ids * size_of(DType::kI32) + t.kv_heads * chunks * size_of(DType::kF32) +
         t.query_width() * size_of(activation);
}

void plan_retrieval(PlanSums& sums, Pass pass) {
  const ModelConfig& t = sums.in().target;
  const SpeculationOptions& o = sums.in().options;
  const LocalShape shape = sums.shape_of(Net::kTarget);
  const std::int64_t pending = sums.sizes().pending_rows, held = sums.held_tokens();
  const int selecting = t.layers - o.dense_layers;
  sums.add(MemTag::kKvRetrieval, sums.kv_bytes(pass, o.budget + pending));
  sums.add(MemTag::kWorkspace, selection_bytes(selecting, shape, o, held, sums.activation_dtype()));
  sums.lease_passes(shape, std::max<std::int64_t>(pending, kMaxBatchInvariantRows),
                    std::max(held, sums.whole_granules(o.budget + pending)), shape.heads,
                    o.chunk_size);
  sums.add_small_pass(pass, o.budget, RetrievalCache::max_append(o.rebuild, pending));
  sums.add(MemTag::kWorkspace, RowCount::bytes());  // of selections
  if (o.selection == Selection::kH2O) {
    sums.add(MemTag::kWorkspace,
             AttentionSums::bytes(selecting, shape.kv_heads, held / o.chunk_size) +
                 DenseLayers::bytes(t.layers, shape.kv_heads, shape.head_dim,
                                    kMaxBatchInvariantRows, sums.in().dtype, sums.granule()));
  }
  if (o.rebuild.kind == RebuildPolicy::Kind::kToken) {
    // Each pass scores all keys, or attends to all keys and values.
    const std::int64_t layer = sums.kv_bytes_of_layer(pass);
    sums.bytes_of(pass).all_per_token +=
        selecting * (o.selection == Selection::kMeanKey ? layer / 2 : layer);
  }
}

}  // namespace

const PassKind kRetrievalKind = {[](const PassSetup& setup) -> std::unique_ptr<PassCache> {
                                   return std::make_unique<RetrievalPass>(setup);
                                 },
                                 plan_retrieval};

}  // namespace triforce
