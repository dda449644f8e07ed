#include "decode/teacher_forced.h"

#include <algorithm>
#include <cmath>

#include "model/full_cache.h"
#include "triforce/model.h"

namespace triforce {
namespace {

// -log softmax(logits)[token], in double.
double negative_log_likelihood(std::span<const float> logits, Token token, std::int64_t position) {
  const double max_logit = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - max_logit);
  const double nll =
      std::log(sum) + max_logit - static_cast<double>(logits[static_cast<std::size_t>(token)]);
  if (!std::isfinite(nll)) {
    throw_numeric("perplexity: expected finite logits, found others after token {}", position);
  }
  return nll;
}

}  // namespace

double teacher_forced_nll(Backend& backend, const ModelWeights& weights,
                          std::span<const Token> tokens, std::int64_t chunk,
                          const std::function<void(std::int64_t fed)>& after_pass) {
  const ModelConfig& c = weights.config;
  const auto total = static_cast<std::int64_t>(tokens.size());
  chunk = std::min(chunk, total);
  LlamaModel model(backend, weights, total, chunk, chunk);
  FullCache cache(backend, c.layers, c.kv_heads, c.head_dim, total, chunk, weights.dtype);
  Tensor copy;  // of the logits, if they are not in host memory
  if (backend.place() != Place::kHost) {
    copy = Tensor(backend.allocator(), DType::kF32, {chunk, c.vocab}, Place::kHost, MemTag::kProbs);
  }
  double sum = 0;
  for (std::int64_t at = 0; at < total; at += chunk) {
    const std::int64_t n = std::min(chunk, total - at);
    TensorView logits =
        model.forward(tokens.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)),
                      cache, Logits::kAll, nullptr, throughput_path(n));
    if (copy) {
      const TensorView host = copy.view().rows(0, n);
      backend.download(host, logits);
      logits = host;
    }
    for (std::int64_t i = 0; i < n && at + i + 1 < total; ++i) {
      const std::span<const float> row(logits.rows(i, 1).as<float>(),
                                       static_cast<std::size_t>(c.vocab));
      sum += negative_log_likelihood(row, tokens[static_cast<std::size_t>(at + i + 1)], at + i);
    }
    after_pass(at + n);
  }
  return sum;
}

}  // namespace triforce
