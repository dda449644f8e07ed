#include "model/llama_tensors.h"

#include <array>
#include <charconv>
#include <system_error>

#include "triforce/format.h"

namespace triforce {
namespace {

struct Part {
  const char* name;
  PartShape shape;
};

Part describe(const ModelConfig& c, WeightPart part) {
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim;
  const std::int64_t kv = std::int64_t{c.kv_heads} * c.head_dim;
  const auto biases = [&](std::int64_t n) { return PartShape{c.has_qkv_bias() ? n : 0, 0}; };
  const PartShape head_norm{c.has_head_norms() ? c.head_dim : 0, 0};
  const std::array<Part, 17> parts = {{{"model.embed_tokens.weight", {c.vocab, c.hidden}},
                                       {"model.norm.weight", {c.hidden, 0}},
                                       {"lm_head.weight", {c.vocab, c.hidden}},
                                       {"input_layernorm.weight", {c.hidden, 0}},
                                       {"self_attn.q_proj.weight", {q, c.hidden}},
                                       {"self_attn.k_proj.weight", {kv, c.hidden}},
                                       {"self_attn.v_proj.weight", {kv, c.hidden}},
                                       {"self_attn.o_proj.weight", {c.hidden, q}},
                                       {"post_attention_layernorm.weight", {c.hidden, 0}},
                                       {"mlp.gate_proj.weight", {c.intermediate, c.hidden}},
                                       {"mlp.up_proj.weight", {c.intermediate, c.hidden}},
                                       {"mlp.down_proj.weight", {c.hidden, c.intermediate}},
                                       {"self_attn.q_proj.bias", biases(q)},
                                       {"self_attn.k_proj.bias", biases(kv)},
                                       {"self_attn.v_proj.bias", biases(kv)},
                                       {"self_attn.q_norm.weight", head_norm},
                                       {"self_attn.k_norm.weight", head_norm}}};
  return parts.at(static_cast<std::size_t>(part));
}

}  // namespace

PartShape part_shape(const ModelConfig& c, WeightPart part) { return describe(c, part).shape; }

std::string part_name(const ModelConfig& c, WeightPart part, int layer) {
  const char* name = describe(c, part).name;
  return part < WeightPart::kAttnNorm ? name : fmt::format("model.layers.{}.{}", layer, name);
}

std::vector<NamedShape> llama_tensors(const ModelConfig& c) {
  std::vector<NamedShape> out;
  const auto add = [&](WeightPart part, int layer) {
    const PartShape s = part_shape(c, part);
    if (s.rows == 0) return;
    NamedShape& tensor = out.emplace_back(NamedShape{part_name(c, part, layer), {s.rows}});
    if (s.cols != 0) tensor.shape.push_back(s.cols);
  };
  constexpr auto kFirst = static_cast<int>(WeightPart::kAttnNorm);
  constexpr auto kLast = static_cast<int>(WeightPart::kKNorm);
  add(WeightPart::kEmbed, 0);
  for (int layer = 0; layer < c.layers; ++layer) {
    for (int part = kFirst; part <= kLast; ++part) add(static_cast<WeightPart>(part), layer);
  }
  add(WeightPart::kFinalNorm, 0);
  if (!c.tied_embeddings) add(WeightPart::kLmHead, 0);
  return out;
}

bool changes_llama(const ModelConfig& c, std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with("model.") && !name.starts_with("lm_head.")) return false;
  if (name == "lm_head.weight" || name.find("rotary_emb.") != std::string_view::npos) return false;
  if (!name.starts_with(kLayers)) return true;
  const std::string_view rest = name.substr(kLayers.size());
  int layer = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  return error != std::errc() || layer < c.layers;
}

}  // namespace triforce
