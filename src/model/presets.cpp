// Published architectures by name.
#include <array>

#include "triforce/checkpoint.h"

namespace triforce {
namespace {

constexpr std::int64_t kLongContext = 131'072;  // 128K tokens

ModelConfig llama2_7b(std::string_view name) {
  ModelConfig c;
  c.name = name;
  c.layers = 32;
  c.hidden = 4'096;
  c.intermediate = 11'008;
  c.vocab = 32'000;
  c.heads = 32;
  c.kv_heads = 32;
  c.head_dim = 128;
  c.max_position = kLongContext;
  c.rms_norm_eps = 1e-5;
  c.stored_dtype = DType::kF16;
  return c;
}

void set_yarn_128k(ModelConfig& c) {
  c.rope.kind = RopeScaling::Kind::kYarn;
  c.rope.factor = 32.0;
  c.rope.original_max_position = 4'096;
  c.stored_dtype = DType::kBF16;
}

// NousResearch/Yarn-Llama-2-7b-128k
ModelConfig yarn_7b() {
  ModelConfig c = llama2_7b(kPaperTarget);
  set_yarn_128k(c);
  return c;
}

// NousResearch/Yarn-Llama-2-13b-128k
ModelConfig yarn_13b() {
  ModelConfig c = llama2_7b("llama-13B-128K");
  c.layers = 40;
  c.hidden = 5'120;
  c.intermediate = 13'824;
  c.heads = 40;
  c.kv_heads = 40;
  set_yarn_128k(c);
  return c;
}

// LargeWorldModel/LWM-Text-Chat-128K, LWM-Text-128K, and LWM-Text-Chat-256K, -512K and -1M: a base
// of RoPE for each stage of training (arXiv 2402.08268, table of training stages of LWM-Text).
ModelConfig lwm(std::string_view name, std::int64_t positions, double rope_theta) {
  ModelConfig c = llama2_7b(name);
  c.max_position = positions;
  c.rope_theta = rope_theta;
  return c;
}

// JackFram/llama-68m and llama-160m. Their config.json name BOS 0 and EOS 2; they are only ever fed
// the target's ids.
ModelConfig jackfram(std::string_view name, int layers) {
  ModelConfig c;
  c.name = name;
  c.layers = layers;
  c.hidden = 768;
  c.intermediate = 3'072;
  c.vocab = 32'000;
  c.heads = 12;
  c.kv_heads = 12;
  c.head_dim = 64;
  c.max_position = 2'048;
  c.rms_norm_eps = 1e-6;
  c.bos = 0;
  c.stored_dtype = DType::kF32;
  return c;
}

// TinyLlama/TinyLlama-1.1B-Chat-v1.0; the other checkpoints of that model have the same shape.
ModelConfig tiny_llama() {
  ModelConfig c;
  c.name = "tinyllama-1.1B";
  c.layers = 22;
  c.hidden = 2'048;
  c.intermediate = 5'632;
  c.vocab = 32'000;
  c.heads = 32;
  c.kv_heads = 4;
  c.head_dim = 64;
  c.max_position = 2'048;
  c.rms_norm_eps = 1e-5;
  c.stored_dtype = DType::kBF16;
  return c;
}

std::array<ModelConfig, 10> presets() {
  return {yarn_7b(),
          yarn_13b(),
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
