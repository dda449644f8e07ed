// Published architectures by name.
#include <array>

#include "triforce/checkpoint.h"

namespace triforce {
namespace {

constexpr std::int64_t kLongContext = 131'072;  // 128K tokens

ModelConfig llama(std::string_view name, int layers, std::int64_t hidden, std::int64_t intermediate,
                  int heads, int kv_heads, std::int64_t positions) {
  ModelConfig c;
  c.name = name;
  c.layers = layers;
  c.hidden = hidden;
  c.intermediate = intermediate;
  c.vocab = 32'000;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = static_cast<int>(hidden / heads);
  c.max_position = positions;
  return c;
}

// NousResearch/Yarn-Llama-2-7b-128k and -13b-128k
ModelConfig yarn(ModelConfig c) {
  c.rope.kind = RopeScaling::Kind::kYarn;
  c.rope.factor = 32.0;
  c.rope.original_max_position = 4'096;
  c.stored_dtype = DType::kBF16;
  return c;
}

// LargeWorldModel/LWM-Text-Chat-128K, LWM-Text-128K, and LWM-Text-Chat-256K, -512K and -1M: a base
// of RoPE for each stage of training (arXiv 2402.08268, table of training stages of LWM-Text).
ModelConfig lwm(std::string_view name, std::int64_t positions, double rope_theta) {
  ModelConfig c = llama(name, 32, 4'096, 11'008, 32, 32, positions);
  c.rope_theta = rope_theta;
  return c;
}

// JackFram/llama-68m and llama-160m. Their config.json name BOS 0 and EOS 2; they are only ever fed
// the target's ids.
ModelConfig jackfram(std::string_view name, int layers) {
  ModelConfig c = llama(name, layers, 768, 3'072, 12, 12, 2'048);
  c.rms_norm_eps = 1e-6;
  c.bos = 0;
  c.stored_dtype = DType::kF32;
  return c;
}

// TinyLlama/TinyLlama-1.1B-Chat-v1.0; the other checkpoints of that model have the same shape.
ModelConfig tiny_llama() {
  ModelConfig c = llama("tinyllama-1.1B", 22, 2'048, 5'632, 32, 4, 2'048);
  c.stored_dtype = DType::kBF16;
  return c;
}

std::array<ModelConfig, 10> presets() {
  return {yarn(llama(kPaperTarget, 32, 4'096, 11'008, 32, 32, kLongContext)),
          yarn(llama("llama-13B-128K", 40, 5'120, 13'824, 40, 40, kLongContext)),
          lwm("lwm-128K", kLongContext, 1e7),
          lwm("lwm-128K-base", kLongContext, 1e7),
          lwm("lwm-256K", 2 * kLongContext, 1e7),
          lwm("lwm-512K", 4 * kLongContext, 2.5e7),
          lwm("lwm-1M", 8 * kLongContext, 5e7),
          jackfram(kPaperDrafter, 2),
          jackfram("llama-160M", 12),
          tiny_llama()};
}

}  // namespace

std::optional<ModelConfig> find_preset(std::string_view name) {
  for (ModelConfig& c : presets()) {
    if (c.name == name) return std::move(c);
  }
  return std::nullopt;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (ModelConfig& c : presets()) names.push_back(std::move(c.name));
  return names;
}

}  // namespace triforce
