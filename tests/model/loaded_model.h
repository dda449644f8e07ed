// A checkpoint on a backend, for tests that compare its logits with what others made of it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "model/tiny_model.h"
#include "triforce/checkpoint.h"

namespace triforce::testing {

constexpr std::int64_t kLoadedTokens = 192;  // that a cache of it holds

// One checkpoint loaded on one backend.
struct Loaded {
  Loaded(Backend& backend, const Checkpoint& checkpoint, DType dtype)
      : Loaded(backend, checkpoint, checkpoint.config(), dtype) {}
  Loaded(Backend& backend, const Checkpoint& checkpoint, const ModelConfig& config, DType dtype)
      : b(backend),
        weights(load_weights(b, checkpoint, config, dtype, MemTag::kTargetWeights, {})),
        model(b, weights, kLoadedTokens, kLoadedTokens, kLoadedTokens) {}

  // Logits [n, V], passes of `step` rows, over a cache whose heads are at `homes`.
  std::vector<float> run(std::span<const Token> tokens, std::size_t step,
                         const KvHomes& homes = {}) {
    const ModelConfig& c = weights.config;
    FullCache cache(b, c.layers, c.kv_heads, c.head_dim, kLoadedTokens, kLoadedTokens,
                    weights.dtype, homes);
    std::vector<float> all;
    for (std::size_t i = 0; i < tokens.size(); i += step) {
      const auto part = tokens.subspan(i, std::min(step, tokens.size() - i));
      const std::vector<float> rows =
          host_copy(b, model.forward(part, cache, Logits::kAll, nullptr,
                                     throughput_path(static_cast<std::int64_t>(part.size()))));
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }
  Backend& b;
  ModelWeights weights;
  LlamaModel model;
};

}  // namespace triforce::testing
