#include "decode/pass_cache.h"
#include "decode/timed_observer.h"
#include "model/prompt_replay.h"
#include "model/retrieval_cache.h"

namespace triforce {
namespace {

RetrievalCache::Options options_of(const SpeculationOptions& o) {
  return {o.budget,       o.chunk_size, o.selection,     o.rebuild,
          o.dense_layers, o.key_rank,   o.outlier_chunks};
}

// The retrieval cache of a lane, and what is made with it.
struct RetrievalLane {
  RetrievalLane(const PassSetup& s, int lane, LaneMemory& memory)
      : cache(s.context.backend(), s.context.cache(lane), s.weights.config.layers,
              s.weights.shape().heads, s.weights.shape().kv_heads, s.weights.shape().head_dim,
              s.sizes.pending_rows, s.weights.dtype, options_of(s.options), &memory),
        observer(cache, s.timer) {
    if (replays_prompt(s.options.selection)) {
      replay.emplace(s.context.backend(), s.context.cache(lane), s.weights.config.layers);
    }
  }
  RetrievalCache cache;
  TimedObserver observer;
  std::optional<PromptReplay> replay;  // if attention in the prompt matters
};

// The target over the chunks that matter most (arXiv 2404.11912, section 4.1).
class RetrievalPass final : public PassCache {
 public:
  explicit RetrievalPass(const PassSetup& s)
      : PassCache(s), lanes_(make_lanes(s.context.lanes(), [&](int lane, LaneMemory& memory) {
          return std::make_unique<RetrievalLane>(s, lane, memory);
        })) {}
  KvCache& cache(int lane) override { return lane_at(lane).cache; }
  bool fill(int lane, const PrefillProgress& progress, const StopRequested& stop) override {
    RetrievalCache& cache = lane_at(lane).cache;
    const std::int64_t tokens = s_.context.cache(lane).committed();
    cache.reset();
    if (s_.options.selection == Selection::kSnapKv) {
      cache.await_selection();
      const std::int64_t unobserved = std::max<std::int64_t>(tokens - kObservedTokens, 0);
      if (!replay(lane, unobserved, progress, stop)) return false;
      cache.commit(tokens);
    } else {
      if (s_.options.selection == Selection::kH2O && !replay(lane, 0, progress, stop)) return false;
      const int selecting = s_.weights.config.layers - s_.options.dense_layers;
      const auto go_on = [&](int done) {
        if (progress) progress(s_.pass, tokens * done / selecting, tokens);
        return !(stop && stop());
      };
      if (!cache.read_prompt(s_.model.rope(), go_on)) return false;
      cache.select_prompt(s_.context.last_queries(lane), s_.model.rope());
    }
    cache.mark();
    return true;
  }
  StoredCache* taking(int lane) override { return &lane_at(lane).cache; }
  LayerObserver* full_observer(int lane) override { return &lane_at(lane).observer; }
  void report_round(int lane, std::int64_t accepted, std::int64_t tested) override {
    lane_at(lane).cache.report_round(accepted, tested);
  }
  TensorView lent() const override { return lane_at(0).cache.memory(); }
  const StoredCache* small(int lane) const override { return &lane_at(lane).cache; }
  const RetrievalCache* selected(int lane) const override { return &lane_at(lane).cache; }

 private:
  RetrievalLane& lane_at(int lane) const { return *lanes_[static_cast<std::size_t>(lane)]; }
  // Shows the cache the attention of the prompt's tokens from `first` on. False: a stop was
  // requested.
  bool replay(int lane, std::int64_t first, const PrefillProgress& progress,
              const StopRequested& stop) {
    PromptReplay* const replayed = &*lane_at(lane).replay;
    const std::span<const Token> prompt = s_.context.prompt(lane);
    const std::span<const Token> prefix = prompt.first(prompt.size() - 1);
    replayed->start_at(first);
    for (auto rest = prefix.subspan(static_cast<std::size_t>(first)); !rest.empty();) {
      if (stop && stop()) return false;
      const auto n = std::min(rest.size(), static_cast<std::size_t>(replayed->max_append()));
      s_.model.forward(rest.first(n), *replayed, Logits::kNone, &lane_at(lane).cache);
      rest = rest.subspan(n);
      if (progress) progress(s_.pass, replayed->length(), std::ssize(prefix));
    }
    return true;
  }

  std::vector<std::unique_ptr<RetrievalLane>> lanes_;
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
  sums.add_of_lanes(MemTag::kKvRetrieval, sums.kv_bytes(pass, o.budget + pending));
  sums.add_of_lanes(MemTag::kWorkspace,
                    selection_bytes(selecting, shape, o, held, sums.activation_dtype()));
  sums.lease_passes(shape, std::max<std::int64_t>(pending, kMaxBatchInvariantRows),
                    std::max(held, sums.whole_granules(o.budget + pending)), shape.heads,
                    o.chunk_size);
  sums.add_small_pass(pass, o.budget, RetrievalCache::max_append(o.rebuild, pending));
  sums.add_of_lanes(MemTag::kWorkspace, RowCount::bytes());  // of selections
  if (o.key_rank > 0) {
    const LowRankPrompt::Shape keys = RetrievalCache::low_rank_shape(
        t.layers, shape.kv_heads, shape.head_dim, held, sums.in().dtype, options_of(o));
    sums.add_of_lanes(MemTag::kKvRetrieval, keys.key_bytes());
    sums.add_of_lanes(MemTag::kWorkspace, keys.workspace_bytes());
  }
  if (o.selection == Selection::kH2O) {
    sums.add_of_lanes(MemTag::kWorkspace,
                      AttentionSums::bytes(selecting, shape.kv_heads, held / o.chunk_size));
  }
  if (replays_prompt(o.selection)) {
    sums.add_of_lanes(MemTag::kWorkspace,
                      DenseLayers::bytes(t.layers, shape.kv_heads, shape.head_dim,
                                         kMaxBatchInvariantRows, sums.in().dtype, sums.granule()));
  }
  if (o.rebuild.kind != RebuildPolicy::Kind::kToken) return;
  // Each pass reads a landmark of each chunk, or scores all keys, or attends to all keys and
  // values.
  const std::int64_t layer = sums.kv_bytes_of_layer(pass);
  PassWork& bytes = sums.bytes_of(pass);
  if (const auto landmarks = RetrievalCache::landmark_shape(
          t.layers, shape.kv_heads, shape.head_dim, held, sums.in().dtype, options_of(o))) {
    sums.add_of_lanes(MemTag::kKvRetrieval, landmarks->bytes(sums.granule()));
    bytes.all_per_token += selecting * layer / 2 / o.chunk_size;
  } else {
    bytes.all_per_token += selecting * (rule_of(o.selection) ? layer / 2 : layer);
  }
  // Rows are gathered for each pass: read in the full cache and written here. Keys that are rebuilt
  // are read from what every head rebuilds them of.
  const std::int64_t gathered = o.key_rank > 0 ? layer / 2 : layer;
  const std::int64_t forms = shape.kv_heads * KvFormat(sums.in().dtype).bytes(o.key_rank);
  bytes.kv_per_token += selecting * (gathered + forms + layer);
  bytes.far_per_token = (sums.kv_heads().bus + sums.kv_heads().host) * gathered / shape.kv_heads;
}

}  // namespace

const PassKind kRetrievalKind = {[](const PassSetup& setup) -> std::unique_ptr<PassRunner> {
                                   return std::make_unique<RetrievalPass>(setup);
                                 },
                                 plan_retrieval};

}  // namespace triforce
