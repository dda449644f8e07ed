#include "triforce/plan.h"

#include <numeric>

#include "decode/sizes.h"
#include "triforce/model.h"

namespace triforce {
namespace {

// Bytes of all weights as the backend stores them: ModelConfig::weight_bytes() and its padding.
std::int64_t stored_weight_bytes(const ModelConfig& c, const PlanInput& in) {
  if (in.backend == nullptr) return c.weight_bytes(in.dtype);
  const auto matrix = [&](std::int64_t rows, std::int64_t cols) {
    return in.backend->matrix_bytes(rows, cols, in.dtype);
  };
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim;
  const std::int64_t kv = std::int64_t{c.kv_heads} * c.head_dim;
  const std::int64_t layer = matrix(q + 2 * kv, c.hidden) + matrix(c.hidden, q) +
                             matrix(2 * c.intermediate, c.hidden) +
                             matrix(c.hidden, c.intermediate);
  const std::int64_t norms = (2 * std::int64_t{c.layers} + 1) * c.hidden * size_of(DType::kF32);
  return c.layers * layer + matrix(c.vocab, c.hidden) + c.vocab * c.hidden * size_of(in.dtype) +
         norms;
}

// Weights a pass reads: all but the embedding table, of which it reads one row a token.
std::int64_t read_weight_bytes(const ModelConfig& c, DType dtype) {
  const std::int64_t embedding = c.vocab * c.hidden * size_of(dtype);
  return c.weight_bytes(dtype) - (c.tied_embeddings ? 0 : embedding);
}

std::int64_t rope_bytes(const ModelConfig& c, std::int64_t positions) {
  return 2 * positions * (c.head_dim / 2) * size_of(DType::kF32);
}

}  // namespace

std::int64_t MemoryPlan::total_bytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

MemoryPlan plan_memory(const PlanInput& in) {
  const ModelConfig& t = in.target;
  const EngineSizes sizes = engine_sizes(
      in.options, in.shape, in.backend == nullptr ? kPrefillChunk : in.backend->prefill_rows());
  const MethodNeeds needs = needs_of(in.shape.methods);
  const DType activation = in.backend == nullptr ? DType::kF32 : in.backend->activation_dtype();
  const int granule = in.backend == nullptr ? 16 : in.backend->kv_granule();
  MemoryPlan plan;
  const auto add = [&](MemTag tag, std::int64_t bytes) {
    plan.bytes[static_cast<std::size_t>(tag)] += bytes;
  };
  const auto kv = [&](const ModelConfig& c, std::int64_t tokens) {
    return KvStorage::bytes(c.layers, c.kv_heads, c.head_dim, tokens, in.dtype, granule);
  };
  plan.kv_bytes_per_token = t.kv_bytes_per_token(in.dtype);
  add(MemTag::kTargetWeights,
      stored_weight_bytes(t, in) + rope_bytes(t, Engine::target_positions(in.options, in.shape)));
  add(MemTag::kKvFull, kv(t, sizes.full_capacity));
  add(MemTag::kActivations,
      LlamaModel::activation_bytes(t, activation, sizes.target_rows, sizes.target_logits));
  add(MemTag::kLaws, sizes.law_rows_target * t.vocab * size_of(DType::kF32));
  Backend::ScratchShape scratch = LlamaModel::scratch_shape(
      t, sizes.target_rows, Engine::target_positions(in.options, in.shape));
  if (needs.retrieval) scratch.chunk_size = in.options.chunk_size;
  const auto scratch_bytes = [&](const Backend::ScratchShape& shape) {
    return in.backend == nullptr ? 0 : in.backend->scratch_bytes(shape);
  };
  std::int64_t workspace = scratch_bytes(scratch);
  const std::int64_t context = in.shape.max_prompt;
  plan.full_pass_bytes = read_weight_bytes(t, in.dtype) + context * plan.kv_bytes_per_token;
  if (needs.retrieval) {
    add(MemTag::kKvRetrieval, kv(t, in.options.budget + sizes.pending_rows));
    plan.retrieval_pass_bytes =
        read_weight_bytes(t, in.dtype) + in.options.budget * plan.kv_bytes_per_token;
  }
  // A streaming cache keeps a second copy, to return to the prompt.
  if (needs.target_streaming)
    add(MemTag::kKvStreaming, 2 * kv(t, in.options.budget + sizes.streaming_append));
  if (needs.draft && in.draft) {
    const ModelConfig& d = *in.draft;
    add(MemTag::kDraftWeights,
        stored_weight_bytes(d, in) + rope_bytes(d, Engine::draft_positions(in.options)));
    add(MemTag::kKvStreaming, 2 * kv(d, in.options.draft_budget + sizes.streaming_append));
    add(MemTag::kActivations,
        LlamaModel::activation_bytes(d, activation, sizes.draft_rows, sizes.draft_logits));
    plan.draft_pass_bytes =
        read_weight_bytes(d, in.dtype) + in.options.draft_budget * d.kv_bytes_per_token(in.dtype);
    const Backend::ScratchShape drafting =
        LlamaModel::scratch_shape(d, sizes.draft_rows, Engine::draft_positions(in.options));
    scratch.grow(drafting);
    workspace = std::max({workspace, scratch_bytes(drafting), scratch_bytes(scratch)});
  }
  add(MemTag::kWorkspace, workspace);
  return plan;
}

}  // namespace triforce
