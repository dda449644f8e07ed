#include <algorithm>

#include "decode/pass_cache.h"
#include "decode/sizes.h"
#include "model/full_cache.h"

namespace triforce {

Context::Context(Backend& backend, const ModelWeights& target, const Shape& shape,
                 Communicator* ranks)
    : Context(backend, target, shape, context_sizes(shape, backend.prefill_rows()), ranks) {}

Context::Context(Backend& backend, const ModelWeights& target, const Shape& shape,
                 const ContextSizes& sizes, Communicator* ranks)
    : backend_(backend),
      weights_(target),
      shape_(shape),
      cache_(std::make_unique<FullCache>(backend, target.config.layers, target.shape().kv_heads,
                                         target.shape().head_dim, sizes.capacity, sizes.append,
                                         target.dtype, shape.homes)),
      model_(backend, target, sizes.capacity, sizes.rows, shape.exact_rows, ranks,
             block_of(shape, sizes, target.config.hidden)),
      queries_(backend, target.config.layers, target.shape().heads, target.shape().head_dim),
      exact_(backend, exact_shape(shape, target.shape())) {
  prompt_.reserve(static_cast<std::size_t>(shape.max_prompt));
}

Context::~Context() = default;

bool Context::prefill(std::span<const Token> prompt, const PrefillProgress& progress,
                      const StopRequested& stop) {
  const auto n = static_cast<std::int64_t>(prompt.size());
  TF_CHECK(n >= 2 && n <= shape_.max_prompt, "prompt of {} tokens, at most {}", n,
           shape_.max_prompt);
  prompt_.clear();
  cache_->reset();
  if (!fill_cache(model_, *cache_, prompt, kFullPass, &queries_, progress, stop)) return false;
  prompt_.assign(prompt.begin(), prompt.end());
  backend_.synchronize();
  return true;
}

void Context::lend(TensorView memory) {
  TF_CHECK(memory.data == nullptr || memory.bytes() >= shape_.lent_bytes, "{} bytes lent, {} said",
           memory.bytes(), shape_.lent_bytes);
  model_.lend(memory);
}

}  // namespace triforce
