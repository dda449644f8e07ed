// Small random pairs for tests of the engine: a target with grouped queries and a smaller drafter.
#pragma once
#include "triforce/decode.h"
#include "triforce/weights.h"

namespace triforce {

inline ModelConfig toy_config(const char* name, int layers, int heads, int kv_heads, int head_dim,
                              std::int64_t vocab) {
  ModelConfig c;
  c.name = name;
  c.layers = layers;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.hidden = static_cast<std::int64_t>(heads) * head_dim;
  c.intermediate = 2 * c.hidden + 8;
  c.vocab = vocab;
  c.max_position = 4096;
  c.eos = {2};
  return c;
}

struct ToyPair {
  ToyPair(Backend& backend, DType dtype, std::int64_t vocab, std::int64_t positions = 2048)
      : target(random_weights(backend, toy_config("toy-target", 2, 4, 2, 16, vocab), dtype,
                              positions, 11, MemTag::kTargetWeights, nullptr)),
        draft(random_weights(backend, toy_config("toy-draft", 1, 2, 2, 16, vocab), dtype, positions,
                             12, MemTag::kDraftWeights, nullptr)) {}
  ModelWeights target, draft;
};

inline const std::vector<Method>& all_methods() {
  static const std::vector<Method> methods = {Method::kTriForce, Method::kRetrieval,
                                              Method::kStreaming, Method::kDraft};
  return methods;
}

inline std::vector<Token> toy_prompt(std::int64_t n, std::int64_t vocab, std::uint32_t index) {
  std::vector<Token> tokens(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    tokens[static_cast<std::size_t>(i)] = static_cast<Token>(
        philox_uniform({9, index, 0, 0}, Purpose::kWeights, static_cast<std::uint32_t>(i)) *
        static_cast<double>(vocab));
  return tokens;
}

// Options for short prompts: caches much smaller than the prompt.
inline SpeculationOptions toy_options() {
  SpeculationOptions o;
  o.budget = 64;
  o.chunk_size = 8;
  o.draft_budget = 64;
  o.ignore_eos = true;
  return o;
}

}  // namespace triforce
