#include "decode/plan_sums.h"

#include "core/rounding.h"
#include "decode/recovery_meter.h"
#include "model/pass_parts.h"

namespace triforce {
namespace {

// Bytes of the matrices of one layer and of one table of the vocabulary, as the backend stores
// them, padding included.
struct MatrixBytes {
  std::int64_t layer, table;
};
MatrixBytes matrix_bytes(const ModelConfig& c, const Shard& shard, WeightFormat format,
                         const Backend& backend) {
  const LocalShape s = local_shape(c, shard);
  const auto matrix = [&](std::int64_t rows, std::int64_t cols) {
    return backend.matrix_bytes(rows, cols, format);
  };
  return {matrix(s.qkv_width(), c.hidden) + matrix(c.hidden, s.query_width()) +
              matrix(2 * s.intermediate, c.hidden) + matrix(c.hidden, s.intermediate),
          matrix(c.vocab, c.hidden)};
}

// Bytes of all weights as the backend stores them: ModelConfig::weight_bytes() and its padding.
std::int64_t stored_weight_bytes(const ModelConfig& c, const Shard& shard, const PlanInput& in) {
  if (in.backend == nullptr) return weight_bytes(c, shard, in.dtype);
  const auto [layer, table] = matrix_bytes(c, shard, in.dtype, *in.backend);
  const std::int64_t vectors = (2 * std::int64_t{c.layers} + 1) * c.hidden +
                               c.layers * c.head_vectors() / shard.size + c.head_biases();
  return c.layers * layer + (c.tied_embeddings ? 1 : 2) * table + vectors * size_of(DType::kF32);
}

// Weights a pass reads: all but the embedding table, of which it reads one row a token. That of a
// tied model is the output head as well, which is read whole.
std::int64_t read_weight_bytes(const ModelConfig& c, const Shard& shard, DType dtype) {
  const std::int64_t table = c.tied_embeddings ? 0 : c.vocab * c.hidden * size_of(dtype);
  return weight_bytes(c, shard, dtype) - table;
}

// Weights of matrices that a pass reads.
std::int64_t read_matrix_weights(const ModelConfig& c, const Shard& shard) {
  const std::int64_t all =
      (weight_bytes(c, shard, DType::kF32) - weight_bytes(c, shard, DType::kF16)) /
      (size_of(DType::kF32) - size_of(DType::kF16));
  return all - (c.tied_embeddings ? 0 : c.vocab * c.hidden);
}

// Quantised copies (DraftMatrices), in whole groups.
std::int64_t draft_bytes(const ModelConfig& c, const Shard& shard, WeightFormat format) {
  const std::int64_t head = c.vocab * c.hidden;
  return quantised_bytes(read_matrix_weights(c, shard) - head, format.quantisation) +
         quantised_bytes(head, of_head(format.quantisation));
}

// What a pass that drafts reads of those copies instead.
std::int64_t read_draft_bytes(const ModelConfig& c, const Shard& shard, WeightFormat format) {
  return read_weight_bytes(c, shard, format.type) -
         read_matrix_weights(c, shard) * size_of(format.type) + draft_bytes(c, shard, format);
}

// Bytes of those copies as the backend stores them, with their biases.
std::int64_t stored_draft_bytes(const ModelConfig& c, const Shard& shard, WeightFormat format,
                                const Backend* backend) {
  const std::int64_t biases =
      c.head_biases() + (c.has_qkv_bias() ? c.layers * local_shape(c, shard).qkv_width() : 0);
  std::int64_t bytes = biases * size_of(DType::kF32);
  if (backend == nullptr) {
    return bytes + draft_bytes(c, shard, format);
  }
  const WeightFormat head(format.type, of_head(format.quantisation));
  return bytes + c.layers * matrix_bytes(c, shard, format, *backend).layer +
         matrix_bytes(c, shard, head, *backend).table;
}

std::int64_t rope_bytes(const ModelConfig& c, std::int64_t positions) {
  return 2 * positions * (c.head_dim / 2) * size_of(DType::kF32);
}

int granule_of(const PlanInput& in) {
  return in.backend == nullptr ? kDeviceKvGranule : in.backend->kv_granule();
}

}  // namespace

PlanSums::PlanSums(const PlanInput& in)
    : in_(in),
      shape_(Context::shape_of(in.run.longest(), in.options,
                               lent_bytes(in.target, local_shape(in.target, in.shard), in.dtype,
                                          in.options, in.run, granule_of(in)))),
      context_(context_sizes(
          shape_, in.backend == nullptr ? kDevicePrefillRows : in.backend->prefill_rows())),
      methods_(method_sizes(in.options, in.run.methods, in.run.lanes)),
      target_(local_shape(in.target, in.shard)),
      activation_(in.backend == nullptr ? in.dtype : in.backend->activation_dtype()),
      held_(round_up(Context::shape_of(in.run, in.options).capacity, granule_of(in))) {}

int PlanSums::granule() const { return granule_of(in_); }

std::int64_t PlanSums::whole_granules(std::int64_t tokens) const {
  return round_up(tokens, granule());
}

std::int64_t PlanSums::kv_bytes(Pass pass, std::int64_t tokens) const {
  const Net net = spec_of(pass).net;
  const LocalShape s = shape_of(net);
  return KvStorage::bytes(small_layers(pass), s.kv_heads, s.head_dim, tokens, in_.dtype, granule());
}

std::int64_t PlanSums::kv_bytes_of_layer(Pass pass) const {
  const Net net = spec_of(pass).net;
  return triforce::kv_bytes_per_token(config(net), shard_of(net), in_.dtype) / config(net).layers;
}

void PlanSums::lease(const Backend::ScratchShape& shape) {
  if (in_.backend == nullptr) return;
  scratch_.grow(shape);
  scratch_bytes_ = std::max(
      {scratch_bytes_, in_.backend->scratch_bytes(scratch_), in_.backend->scratch_bytes(shape)});
}

void PlanSums::lease_passes(const LocalShape& s, std::int64_t rows, std::int64_t context, int heads,
                            int chunk) {
  lease(StoredCache::scratch_shape(rows, context, heads, s.kv_heads, s.head_dim, chunk));
}

void PlanSums::add_pass(Pass pass, std::int64_t max_tokens) {
  const Net net = spec_of(pass).net;
  const bool quantised = drafts_by_copies(pass, in_.options);
  plan_.passes[pass] = {
      .weights = quantised ? read_draft_bytes(config(net), shard_of(net), draft_format())
                           : read_weight_bytes(config(net), shard_of(net), in_.dtype),
      .kv_per_token = kv_bytes_of_layer(pass) * config(net).layers,
      .max_tokens = max_tokens,
      .lanes = in_.run.lanes};
}

void PlanSums::add_model(Net net, MemTag weights, std::int64_t positions, std::int64_t rows,
                         std::int64_t logits, const PromptBlock& block) {
  const ModelConfig& c = config(net);
  const Shard shard = shard_of(net);
  add(weights, stored_weight_bytes(c, shard, in_) + rope_bytes(c, positions));
  add(MemTag::kWorkspace, PassParts::bytes(std::max(rows, block.tokens), rows));
  add(MemTag::kActivations,
      LlamaModel::activation_bytes(c, activation_, rows, logits, shard, block));
  lease(LlamaModel::scratch_shape(c, rows, positions, shard));
}

void PlanSums::add_full_cache(std::int64_t capacity, std::int64_t append) {
  const ModelConfig& t = in_.target;
  const auto head = [&](std::int64_t tokens) {
    return KvStorage::bytes(1, 1, t.head_dim, tokens, in_.dtype, granule());
  };
  const KvHeadCounts n = count_heads(in_.run.homes, t.layers, target_.kv_heads);
  plan_.kv_heads = n;
  const std::int64_t slots = std::min<std::int64_t>(in_.run.homes.slots, n.bus + n.host);
  add_of_lanes(MemTag::kKvFull, (n.near + slots) * head(capacity));
  add_of_lanes(MemTag::kKvFar, (n.bus + n.host) * head(capacity));
  lease_passes(target_, std::min<std::int64_t>(append, kMaxBatchInvariantRows),
               whole_granules(capacity), target_.kv_heads, 0);
  add_pass(kFullPass, capacity);
  const std::int64_t row = 2 * KvFormat(in_.dtype).bytes(t.head_dim);
  const LlamaModel::RowOperations operations = LlamaModel::row_operations(t, in_.shard);
  PassWork& full = plan_.passes[kFullPass];
  full.far_per_token = n.bus * row;
  full.host_per_token = n.host * row;
  full.row_operations = operations.of_weights;
  full.key_operations = operations.of_each_key;
}

void PlanSums::add_context() {
  const ModelConfig& t = in_.target;
  add_full_cache(context_.capacity, context_.append);
  add_model(Net::kTarget, MemTag::kTargetWeights, context_.capacity, context_.rows,
            shape_.exact_rows, block_of(shape_, context_, t.hidden));
  if (draft_format().is_quantised()) {
    add(MemTag::kTargetWeights, stored_draft_bytes(t, in_.shard, draft_format(), in_.backend));
  }
  lease(exact_shape(shape_, target_));
  add_of_lanes(MemTag::kActivations,  // the last queries
               t.layers * target_.query_width() * size_of(activation_));
}

void PlanSums::add_teacher_forced(std::int64_t tokens, std::int64_t rows) {
  add_model(Net::kTarget, MemTag::kTargetWeights, tokens, rows, rows);
  add_full_cache(tokens, rows);
  const bool copies = in_.backend == nullptr || in_.backend->place() != Place::kHost;
  if (copies) add(MemTag::kProbs, rows * in_.target.vocab * size_of(DType::kF32));
}

void PlanSums::add_drafter() {
  add_model(Net::kDrafter, MemTag::kDraftWeights, methods_.draft_positions, kStreamingChunk,
            shape_.exact_rows);
}

void PlanSums::add_small_pass(Pass pass, std::int64_t budget, std::int64_t append) {
  const LocalShape s = shape_of(spec_of(pass).net);
  const int dense = dense_layers(pass);
  add_of_lanes(MemTag::kWorkspace,
               DenseLayers::bytes(dense, s.kv_heads, s.head_dim, append, in_.dtype, granule()));
  add_pass(pass, budget);
  const std::int64_t layer = kv_bytes_of_layer(pass);
  plan_.passes[pass].kv_per_token -= dense * layer;
  plan_.passes[pass].all_per_token = dense * layer;
}

void PlanSums::add_recovery_meter() {
  add_of_lanes(MemTag::kWorkspace, RecoveryMeter::bytes(target_.heads, target_.kv_heads,
                                                        target_.head_dim, held_, activation_));
  lease(RecoveryMeter::scratch_shape(target_.heads, target_.kv_heads, target_.head_dim, held_));
}

MemoryPlan PlanSums::finished() {
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

}  // namespace triforce
