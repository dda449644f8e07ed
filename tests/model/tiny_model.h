// Tiny models and sequences for the tests of the model layer.
#pragma once
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "model/retrieval_cache.h"
#include "model/streaming_cache.h"
#include "reference/reference_backend.h"
#include "triforce/model.h"
#include "triforce/weights.h"

namespace triforce::testing {

inline ModelConfig tiny_config(int heads = 4, int kv_heads = 2, int head_dim = 8) {
  ModelConfig c;
  c.name = "tiny";
  c.layers = 2;
  c.hidden = 24;
  c.intermediate = 40;
  c.vocab = 61;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.max_position = 512;
  c.stored_dtype = DType::kF32;
  return c;
}

inline std::vector<Token> random_tokens(std::int64_t n, std::int64_t vocab, std::uint32_t seed) {
  std::mt19937 g(seed);
  std::vector<Token> t(static_cast<std::size_t>(n));
  for (Token& x : t) x = static_cast<Token>(g() % static_cast<std::uint32_t>(vocab));
  return t;
}

// Host copy of a view, as floats.
inline std::vector<float> host_copy(Backend& b, const TensorView& v) {
  std::vector<float> out(static_cast<std::size_t>(v.numel()));
  TensorView to = v;
  to.data = out.data();
  to.dtype = DType::kF32;
  std::int64_t stride = 1;
  for (std::size_t i = v.rank; i-- > 0; stride *= v.shape[i]) to.stride[i] = stride;
  b.download(to, v);
  return out;
}

// One row of K or V of a head in f32 as bytes; the reference backend keeps rows plain.
inline std::string row_bytes(const void* rows, const KvView& kv, int head, std::int64_t row) {
  const auto* p = static_cast<const float*>(rows) + head * kv.head_stride + row * kv.head_dim;
  return {reinterpret_cast<const char*>(p), static_cast<std::size_t>(kv.head_dim) * sizeof(float)};
}

// A backend, random weights of `config` and a model over them.
struct Tiny {
  explicit Tiny(const ModelConfig& config, DType dtype = DType::kF32, std::uint64_t seed = 7,
                std::int64_t rope_positions = 512, std::unique_ptr<Backend> on = nullptr)
      : backend(on != nullptr ? std::move(on) : make_reference_backend(8)),
        weights(random_weights(*backend, config, dtype, seed, MemTag::kTargetWeights, {})),
        model(*backend, weights, rope_positions, 64, 64) {}

  FullCache full(std::int64_t capacity = 256) const {
    const ModelConfig& c = weights.config;
    return {*backend, c.layers, c.kv_heads, c.head_dim, capacity, 64, weights.dtype};
  }
  // Logits [tokens, V] after appending tokens to the cache in passes of `step`.
  std::vector<float> run(std::span<const Token> tokens, KvCache& cache, std::int64_t step,
                         LayerObserver* observer = nullptr) {
    std::vector<float> all;
    for (std::size_t i = 0; i < tokens.size(); i += static_cast<std::size_t>(step)) {
      const auto n = std::min(static_cast<std::size_t>(step), tokens.size() - i);
      const std::vector<float> part =
          host_copy(*backend, model.forward(tokens.subspan(i, n), cache, Logits::kAll, observer,
                                            throughput_path(static_cast<std::int64_t>(n))));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  std::unique_ptr<Backend> backend;
  ModelWeights weights;
  LlamaModel model;
};

// Ends a prompt as decoding does: the passes over its last tokens are observed, the last token is
// dropped from the full cache, and its queries select what the retrieval cache holds.
inline void end_prompt(LlamaModel& model, std::span<const Token> last_pass, FullCache& full,
                       RetrievalCache& retrieval, LastQueries& queries) {
  model.forward(last_pass, full, Logits::kNone, &queries,
                throughput_path(static_cast<std::int64_t>(last_pass.size())));
  full.truncate(full.length() - 1);
  full.commit(full.length());
  retrieval.select_prompt(queries.view(), model.rope());
}
// The same, and the last token fed again.
inline void end_and_feed_again(Tiny& t, std::span<const Token> last_pass, FullCache& full,
                               RetrievalCache& retrieval) {
  const ModelConfig& c = t.weights.config;
  LastQueries queries(*t.backend, c.layers, c.heads, c.head_dim);
  end_prompt(t.model, last_pass, full, retrieval, queries);
  t.model.forward(last_pass.last(1), full, Logits::kNone);
  retrieval.commit(full.length());
}

inline double largest_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  double d = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    d = std::isnan(x) ? INFINITY : std::max(d, x);
  }
  return d;
}

}  // namespace triforce::testing
