// What a run will allocate and move, computed from the configurations alone.
#pragma once
#include <array>
#include <cstdint>

#include "triforce/checkpoint.h"
#include "triforce/decode.h"

namespace triforce {

struct MemoryPlan {
  std::array<std::int64_t, static_cast<std::size_t>(MemTag::kCount)> bytes{};  // by MemTag
  std::int64_t total_bytes() const;
  // Bytes one pass must read: weights without the embedding table, and the KV cache it attends to.
  std::int64_t full_pass_bytes = 0, retrieval_pass_bytes = 0, draft_pass_bytes = 0;
  std::int64_t kv_bytes_per_token = 0;
};

struct PlanInput {
  ModelConfig target;
  std::optional<ModelConfig> draft;
  DType dtype = DType::kF16;
  SpeculationOptions options;
  Engine::Shape shape;
  // Whose layouts count; null: f32 activations, KV granules of 16 tokens, matrices without padding.
  const Backend* backend = nullptr;
};
// The ledger of an Engine built from the same input over the same backend equals this, tag by tag,
// but for kWorkspace, of which this holds the backend's scratch, the largest part.
MemoryPlan plan_memory(const PlanInput& input);

}  // namespace triforce
