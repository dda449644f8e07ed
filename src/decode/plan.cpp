#include "triforce/plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/rounding.h"
#include "decode/recovery_meter.h"
#include "decode/sizes.h"
#include "model/retrieval_cache.h"
#include "triforce/model.h"
#include "triforce/weights.h"

namespace triforce {
namespace {

// Bytes of all weights as the backend stores them: ModelConfig::weight_bytes() and its padding.
std::int64_t stored_weight_bytes(const ModelConfig& c, const Shard& shard, const PlanInput& in) {
  if (in.backend == nullptr) return weight_bytes(c, shard, in.dtype);
  const LocalShape s = local_shape(c, shard);
  const auto matrix = [&](std::int64_t rows, std::int64_t cols) {
    return in.backend->matrix_bytes(rows, cols, in.dtype);
  };
  const std::int64_t layer = matrix(s.qkv_width(), c.hidden) + matrix(c.hidden, s.query_width()) +
                             matrix(2 * s.intermediate, c.hidden) +
                             matrix(c.hidden, s.intermediate);
  const std::int64_t norms = (2 * std::int64_t{c.layers} + 1) * c.hidden * size_of(DType::kF32);
  return c.layers * layer + matrix(c.vocab, c.hidden) + c.vocab * c.hidden * size_of(in.dtype) +
         norms;
}

// Weights a pass reads: all but the embedding table, of which it reads one row a token. A tied
// model has the table, too, beside the output matrix, which is read whole.
std::int64_t read_weight_bytes(const ModelConfig& c, const Shard& shard, DType dtype) {
  return weight_bytes(c, shard, dtype) - c.vocab * c.hidden * size_of(dtype);
}

// Of these, what only logits need: all of the last layer after its keys and values, and the head.
std::int64_t logits_weight_bytes(const ModelConfig& c, DType dtype) {
  const std::int64_t width = std::int64_t{c.heads} * c.head_dim;
  return (c.hidden * width + 3 * c.hidden * c.intermediate + c.vocab * c.hidden) * size_of(dtype) +
         2 * c.hidden * size_of(DType::kF32);
}

std::int64_t rope_bytes(const ModelConfig& c, std::int64_t positions) {
  return 2 * positions * (c.head_dim / 2) * size_of(DType::kF32);
}

int granule_of(const PlanInput& in) {
  return in.backend == nullptr ? kDeviceKvGranule : in.backend->kv_granule();
}

// Dense layers append to rows where they lie, and those of a far head are in its slot, too.
// Selections for each token would bring every key over the bus for each that is drafted, and sums
// of attention for every 32 tokens of the prompt.
void check_homes(const PlanInput& in) {
  if (in.run.homes.near_heads.empty()) return;
  const bool each_token = in.options.rebuild.kind == RebuildPolicy::Kind::kToken;
  if (any_uses(in.run.methods, Pass::kRetrieval) &&
      (each_token || in.options.selection == Selection::kH2O)) {
    throw_usage(
        "{}: expected all KV heads in the device's memory, found some in the host's: leave out "
        "--kv-offload and --on-chip",
        each_token ? "--rebuild token" : "--selection h2o");
  }
  const int kv_heads = local_shape(in.target, in.shard).kv_heads;
  for (int l = 0; l < in.options.dense_layers; ++l) {
    const int near = in.run.homes.near_heads.at(static_cast<std::size_t>(l));
    if (near == kv_heads) continue;
    throw_usage(
        "--dense-layers: expected all {} KV heads of layer {} in the device's memory, found {}: "
        "leave out --kv-offload and --on-chip",
        kv_heads, l, near);
  }
}

std::int64_t selection_bytes(int layers, const LocalShape& t, const SpeculationOptions& o,
                             std::int64_t capacity, DType activation) {
  const std::int64_t ids = std::int64_t{layers} * t.kv_heads * (o.budget / o.chunk_size);
  const std::int64_t chunks = std::max<std::int64_t>(1, capacity / o.chunk_size);
  return 2 * ids * size_of(DType::kI32) + t.kv_heads * chunks * size_of(DType::kF32) +
         t.query_width() * size_of(activation);
}

// Adds up what the backend, loading, Context and Methods allocate, in the order in which they do.
class Planner {
 public:
  explicit Planner(const PlanInput& in)
      : in_(in),
        shape_(Context::shape_of(
            in.run, lent_bytes(in.target, local_shape(in.target, in.shard), in.dtype, in.options,
                               in.run.methods, granule_of(in)))),
        context_(context_sizes(
            shape_, in.backend == nullptr ? kDevicePrefillRows : in.backend->prefill_rows())),
        held_(round_up(context_.capacity, granule_of(in))),
        methods_(method_sizes(in.options, in.run.methods)),
        target_(local_shape(in.target, in.shard)),
        activation_(in.backend == nullptr ? in.dtype : in.backend->activation_dtype()) {}

  MemoryPlan run() {
    const auto uses = [&](Pass p) { return any_uses(in_.run.methods, p); };
    add_context();
    if (uses(Pass::kRetrieval)) add_retrieval();
    if (uses(Pass::kStreaming)) add_streaming(in_.target, in_.options.budget, Pass::kStreaming);
    for (const Pass small : kBudgetPasses) {
      if (in_.options.measure_recovery && uses(small)) add_recovery_meter();
    }
    if (uses(Pass::kDraft)) add_drafter(*in_.draft);
    add(MemTag::kProbs, methods_.prob_rows * in_.target.vocab * size_of(DType::kF32));
    return finished();
  }
  MemoryPlan teacher_forced(std::int64_t chunk) {
    const ModelConfig& t = in_.target;
    const std::int64_t tokens = in_.run.max_prompt, rows = std::min(chunk, tokens);
    add_model(t, in_.shard, MemTag::kTargetWeights, tokens, rows, rows);
    add_full_cache(tokens, rows);
    const bool copies = in_.backend == nullptr || in_.backend->place() != Place::kHost;
    if (copies) add(MemTag::kProbs, rows * t.vocab * size_of(DType::kF32));
    return finished();
  }

 private:
  void add(MemTag tag, std::int64_t bytes) { plan_.bytes[static_cast<std::size_t>(tag)] += bytes; }
  // The target is shared by ranks, the drafter whole on each.
  Shard shard_of(Pass pass) const { return pass == Pass::kDraft ? Shard{} : in_.shard; }
  // Of a small cache: layers that read the full one instead.
  int dense_layers(Pass pass) const { return pass == Pass::kDraft ? 0 : in_.options.dense_layers; }
  // Of a small cache.
  std::int64_t kv(const ModelConfig& c, Pass pass, std::int64_t tokens) const {
    const LocalShape s = local_shape(c, shard_of(pass));
    return KvStorage::bytes(c.layers - dense_layers(pass), s.kv_heads, s.head_dim, tokens,
                            in_.dtype, granule_of(in_));
  }
  std::int64_t kv_head(const ModelConfig& c, std::int64_t tokens) const {
    return KvStorage::bytes(1, 1, c.head_dim, tokens, in_.dtype, granule_of(in_));
  }
  void add_pass(Pass pass, const ModelConfig& c, std::int64_t max_tokens) {
    plan_.passes[pass] = {.weights = read_weight_bytes(c, shard_of(pass), in_.dtype),
                          .kv_per_token = kv_bytes_of_layer(pass, c) * c.layers,
                          .max_tokens = max_tokens};
  }
  std::int64_t kv_bytes_of_layer(Pass pass, const ModelConfig& c) const {
    return triforce::kv_bytes_per_token(c, shard_of(pass), in_.dtype) / c.layers;
  }
  void add_small_pass(Pass pass, const ModelConfig& c, std::int64_t budget, std::int64_t append) {
    const LocalShape s = local_shape(c, shard_of(pass));
    const int dense = dense_layers(pass);
    add(MemTag::kWorkspace,
        PassInputs::bytes(append) +
            DenseLayers::bytes(dense, s.kv_heads, s.head_dim, append, in_.dtype, granule_of(in_)));
    add_pass(pass, c, budget);
    const std::int64_t layer = kv_bytes_of_layer(pass, c);
    plan_.passes[pass].kv_per_token -= dense * layer;
    plan_.passes[pass].all_per_token = dense * layer;
  }
  MemoryPlan finished() {
    plan_.kv_bytes_per_token = triforce::kv_bytes_per_token(in_.target, in_.shard, in_.dtype);
    plan_.prefill_operations =
        LlamaModel::prefill_operations(in_.target, in_.run.max_prompt, in_.shard);
    add(MemTag::kWorkspace, scratch_bytes_);
    // What drawing takes is given back before the rest is taken.
    std::int64_t& workspace = plan_.bytes[static_cast<std::size_t>(MemTag::kWorkspace)];
    if (in_.random_target) workspace = std::max(workspace, random_weights_workspace(in_.target));
    if (in_.draft && in_.random_draft) {
      workspace = std::max(workspace, random_weights_workspace(*in_.draft));
    }
    if (in_.backend == nullptr) return plan_;
    plan_.place = in_.backend->place();
    plan_.held_bytes = in_.backend->own_bytes(MemTag::kWorkspace);
    workspace += plan_.held_bytes;
    add(MemTag::kStaging, in_.backend->own_bytes(MemTag::kStaging) + in_.communicator_bytes +
                              in_.backend->staging_bytes(scratch_));
    return plan_;
  }
  // One lease after another grows the scratch: the largest counts.
  void lease(const Backend::ScratchShape& shape) {
    if (in_.backend == nullptr) return;
    scratch_.grow(shape);
    scratch_bytes_ = std::max(
        {scratch_bytes_, in_.backend->scratch_bytes(scratch_), in_.backend->scratch_bytes(shape)});
  }
  void lease_passes(const LocalShape& s, std::int64_t rows, std::int64_t context, int heads,
                    int chunk) {
    lease(StoredCache::scratch_shape(rows, context, heads, s.kv_heads, s.head_dim, chunk));
  }
  std::int64_t whole_granules(std::int64_t tokens) const {
    return round_up(tokens, granule_of(in_));
  }
  void add_model(const ModelConfig& c, const Shard& shard, MemTag weights, std::int64_t positions,
                 std::int64_t rows, std::int64_t logits, const PromptBlock& block = {}) {
    add(weights, stored_weight_bytes(c, shard, in_) + rope_bytes(c, positions));
    add(MemTag::kActivations,
        LlamaModel::activation_bytes(c, activation_, rows, logits, shard, block));
    lease(LlamaModel::scratch_shape(c, rows, positions, shard));
  }
  void add_full_cache(std::int64_t capacity, std::int64_t append) {
    const ModelConfig& t = in_.target;
    const KvHeadCounts n = count_heads(in_.run.homes, t.layers, target_.kv_heads);
    plan_.kv_heads = n;
    const std::int64_t slots = std::min<std::int64_t>(in_.run.homes.slots, n.bus + n.host);
    add(MemTag::kKvFull, (n.near + slots) * kv_head(t, capacity));
    add(MemTag::kKvFar, (n.bus + n.host) * kv_head(t, capacity));
    add(MemTag::kWorkspace, PassInputs::bytes(append));
    lease_passes(target_, std::min<std::int64_t>(append, kMaxBatchInvariantRows),
                 whole_granules(capacity), target_.kv_heads, 0);
    add_pass(Pass::kFull, t, capacity);
    const std::int64_t row = 2 * std::int64_t{t.head_dim} * size_of(in_.dtype);
    plan_.passes[Pass::kFull].far_per_token = n.bus * row;
    plan_.passes[Pass::kFull].host_per_token = n.host * row;
  }

  void add_context() {
    const ModelConfig& t = in_.target;
    add_full_cache(context_.capacity, context_.append);
    add_model(t, in_.shard, MemTag::kTargetWeights, context_.capacity, context_.rows,
              kMaxBatchInvariantRows, block_of(shape_, context_, t.hidden));
    if (const auto host = host_attention_shape(shape_, target_)) lease(*host);
    add(MemTag::kActivations,  // the last queries
        t.layers * target_.query_width() * size_of(activation_));
  }
  void add_retrieval() {
    const ModelConfig& t = in_.target;
    const SpeculationOptions& o = in_.options;
    add(MemTag::kKvRetrieval, kv(t, Pass::kRetrieval, o.budget + methods_.pending_rows));
    add(MemTag::kWorkspace,
        selection_bytes(t.layers - o.dense_layers, target_, o, held_, activation_));
    lease_passes(target_, std::max<std::int64_t>(methods_.pending_rows, kMaxBatchInvariantRows),
                 std::max(held_, whole_granules(o.budget + methods_.pending_rows)), target_.heads,
                 o.chunk_size);
    add_small_pass(Pass::kRetrieval, t, o.budget,
                   RetrievalCache::max_append(o.rebuild, methods_.pending_rows));
    add(MemTag::kWorkspace, PassInputs::bytes(1));  // of selections
    if (o.selection == Selection::kH2O) {
      add(MemTag::kWorkspace,
          AttentionSums::bytes(t.layers - o.dense_layers, target_.kv_heads, held_ / o.chunk_size) +
              DenseLayers::bytes(t.layers, target_.kv_heads, target_.head_dim,
                                 kMaxBatchInvariantRows, in_.dtype, granule_of(in_)));
    }
    if (o.rebuild.kind == RebuildPolicy::Kind::kToken) {
      // Each pass scores all keys, or attends to all keys and values.
      const std::int64_t layer = kv_bytes_of_layer(Pass::kRetrieval, t);
      plan_.passes[Pass::kRetrieval].all_per_token +=
          (t.layers - o.dense_layers) * (o.selection == Selection::kMeanKey ? layer / 2 : layer);
    }
  }
  // A streaming cache keeps a second copy, to return to the prompt.
  void add_streaming(const ModelConfig& c, std::int64_t budget, Pass pass) {
    const LocalShape s = local_shape(c, shard_of(pass));
    add(MemTag::kKvStreaming, 2 * kv(c, pass, budget + kStreamingChunk));
    lease_passes(s, kStreamingChunk, whole_granules(budget + kStreamingChunk), s.kv_heads, 0);
    add_small_pass(pass, c, budget, kStreamingChunk);
  }
  void add_recovery_meter() {
    add(MemTag::kWorkspace, RecoveryMeter::bytes(target_.heads, target_.kv_heads, target_.head_dim,
                                                 held_, activation_));
    lease(RecoveryMeter::scratch_shape(target_.heads, target_.kv_heads, target_.head_dim, held_));
  }
  void add_drafter(const ModelConfig& d) {
    add_streaming(d, in_.options.draft_budget, Pass::kDraft);
    if (in_.options.draft_cache == DraftCache::kWindow) {
      PassBytes& pass = plan_.passes[Pass::kDraft];
      pass.part_rows = kStreamingChunk;
      pass.only_last_weights = logits_weight_bytes(d, in_.dtype);
    }
    add_model(d, {}, MemTag::kDraftWeights, methods_.draft_positions, kStreamingChunk,
              kMaxBatchInvariantRows);
  }

  const PlanInput& in_;
  Context::Shape shape_;
  ContextSizes context_;
  std::int64_t held_;  // tokens the full cache has room for, whole granules
  MethodSizes methods_;
  LocalShape target_;
  DType activation_;
  Backend::ScratchShape scratch_;
  std::int64_t scratch_bytes_ = 0;
  MemoryPlan plan_;
};

}  // namespace

std::int64_t MemoryPlan::total_bytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::int64_t MemoryPlan::far_bytes() const {
  std::int64_t far = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (place_of(static_cast<MemTag>(i), place) == Place::kPinned) far += bytes[i];
  }
  return far;
}

KvHomes spread_homes(int layers, int kv_heads, std::int64_t near_heads, int host_split) {
  const std::int64_t all = std::int64_t{layers} * kv_heads;
  TF_CHECK(near_heads >= 0 && near_heads <= all, "{} near KV heads of {}", near_heads, all);
  if (near_heads == all) return {};
  KvHomes homes;
  homes.slots = kKvSlots;
  for (std::int64_t l = 0; l < layers; ++l) {
    const std::int64_t before = near_heads * l / layers, after = near_heads * (l + 1) / layers;
    const auto near = static_cast<int>(after - before);
    homes.near_heads.push_back(near);
    homes.slots = std::max(homes.slots, kv_heads - near);
  }
  return with_host_split(std::move(homes), kv_heads, host_split);
}

KvHomes with_host_split(KvHomes homes, int kv_heads, int host_split) {
  homes.host_heads.clear();
  if (host_split == 0) return homes;
  for (const int near : homes.near_heads) {
    homes.host_heads.push_back(std::min(host_split, kv_heads - near));
  }
  return homes;
}

int max_far_heads(const KvHomes& homes, int kv_heads) {
  const auto least = std::min_element(homes.near_heads.begin(), homes.near_heads.end());
  return least == homes.near_heads.end() ? 0 : kv_heads - *least;
}

double near_layers(const PlanInput& in) {
  const int kv_heads = local_shape(in.target, in.shard).kv_heads;
  return static_cast<double>(count_heads(in.run.homes, in.target.layers, kv_heads).near) / kv_heads;
}

int choose_host_split(int far_heads, const std::function<double(int bus, int host)>& time) {
  int best = 0;
  for (int host = 1; host <= far_heads; ++host) {
    if (time(far_heads - host, host) < time(far_heads - best, best)) best = host;
  }
  return best;
}

int choose_host_split(int far_heads, const Backend::FarRates& rates) {
  return choose_host_split(far_heads, [&](int bus, int host) {
    return std::max(bus / rates.bus_gbs, host / rates.host_gbs);
  });
}

KvHomes fit_homes(PlanInput in, std::int64_t near_bytes, int host_split) {
  const int layers = in.target.layers, kv_heads = local_shape(in.target, in.shard).kv_heads;
  const auto fits = [&](std::int64_t near) {
    in.run.homes = spread_homes(layers, kv_heads, near, host_split);
    return plan_memory(in).near_bytes() <= near_bytes;
  };
  const std::int64_t all = std::int64_t{layers} * kv_heads;
  // With the last head near, slots and the long pass over the prompt are gone.
  if (fits(all)) return {};
  std::int64_t best = 0, beyond = all;  // the first is taken to fit, the second not to
  while (beyond - best > 1) {
    const std::int64_t middle = best + (beyond - best) / 2;
    (fits(middle) ? best : beyond) = middle;
  }
  return spread_homes(layers, kv_heads, best, host_split);
}

void check_run(const PlanInput& in) {
  check_shape(in.run);
  check_options(in.options, in.run.methods);
  check_ranks(in.target, in.shard.size);
  check_target(in.target, in.options, in.run);
  check_homes(in);
  check_drafter(in.target, in.draft ? &*in.draft : nullptr, in.options, in.run.methods);
}

MemoryPlan plan_memory(const PlanInput& in) {
  check_run(in);
  return Planner(in).run();
}

MemoryPlan plan_teacher_forced(const PlanInput& in, std::int64_t chunk) {
  check_run(in);
  return Planner(in).teacher_forced(chunk);
}

}  // namespace triforce
