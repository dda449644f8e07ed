// The tensors of a checkpoint, their shapes, and their names in transformers.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/checkpoint.h"

namespace triforce {

// These are the tensors as they are published, before q, k, v and gate, up are stacked. Each layer
// has those from kAttnNorm on, if its architecture has them. Random weights are drawn by this
// order.
enum class WeightPart : std::uint8_t {
  kEmbed,
  kFinalNorm,
  kLmHead,
  kAttnNorm,
  kQ,
  kK,
  kV,
  kOut,
  kFfnNorm,
  kGate,
  kUp,
  kDown,
  kQBias,
  kKBias,
  kVBias,
  kQNorm,
  kKNorm,
};

// [rows, cols], or [rows] with cols = 0 for a norm or a bias; rows = 0: the architecture has none.
struct PartShape {
  std::int64_t rows = 0, cols = 0;
};
PartShape part_shape(const ModelConfig& config, WeightPart part);
// "model.layers.3.mlp.up_proj.weight". `layer` is ignored by parts outside the layers; the head of
// a tied model is its embedding.
std::string part_name(const ModelConfig& config, WeightPart part, int layer);

struct NamedShape {
  std::string name;
  std::vector<std::int64_t> shape;
};
// Returns every tensor that a Llama of this configuration is made of, in the order of the layers.
// With tied embeddings there is no lm_head.weight.
std::vector<NamedShape> llama_tensors(const ModelConfig& config);
// Returns whether a tensor of this name, which is none of those, belongs to what the model
// computes: it is in the model or its head. Buffers of the rotary embedding do not belong to it.
// Nor do layers beyond those of the configuration, or the stored head of a tied model.
bool changes_llama(const ModelConfig& config, std::string_view name);

}  // namespace triforce
