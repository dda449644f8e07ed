#include "model/llama_tensors.h"

namespace triforce {

std::vector<NamedShape> llama_tensors(const ModelConfig& c) {
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim;
  const std::int64_t kv = std::int64_t{c.kv_heads} * c.head_dim;
  std::vector<NamedShape> out;
  out.push_back({"model.embed_tokens.weight", {c.vocab, c.hidden}});
  for (int i = 0; i < c.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    out.push_back({layer + "input_layernorm.weight", {c.hidden}});
    out.push_back({layer + "self_attn.q_proj.weight", {q, c.hidden}});
    out.push_back({layer + "self_attn.k_proj.weight", {kv, c.hidden}});
    out.push_back({layer + "self_attn.v_proj.weight", {kv, c.hidden}});
    out.push_back({layer + "self_attn.o_proj.weight", {c.hidden, q}});
    out.push_back({layer + "post_attention_layernorm.weight", {c.hidden}});
    out.push_back({layer + "mlp.gate_proj.weight", {c.intermediate, c.hidden}});
    out.push_back({layer + "mlp.up_proj.weight", {c.intermediate, c.hidden}});
    out.push_back({layer + "mlp.down_proj.weight", {c.hidden, c.intermediate}});
  }
  out.push_back({"model.norm.weight", {c.hidden}});
  if (!c.tied_embeddings) out.push_back({"lm_head.weight", {c.vocab, c.hidden}});
  return out;
}

}  // namespace triforce
