#include "decode/pass_cache.h"

#include <algorithm>

namespace triforce {
namespace {

// In the order of kPassTable.
constexpr PerPass<const PassKind*> kKinds = {
    {&kFullKind, &kRetrievalKind, &kStreamingKind, &kStreamingKind}};

}  // namespace

const PassKind& kind_of(Pass pass) { return *kKinds[pass]; }

bool fill_cache(LlamaModel& model, KvCache& cache, std::span<const Token> prompt, Pass pass,
                LayerObserver* last_pass_observer, const PrefillProgress& progress,
                const StopRequested& stop) {
  const auto n = static_cast<std::int64_t>(prompt.size());
  const std::int64_t max_rows = std::min(cache.max_append(), model.max_block());
  if (stop && stop()) return false;
  for (std::int64_t begin = 0; begin < n;) {
    const std::int64_t rows = std::min(max_rows, n - begin);
    const bool last = begin + rows == n;
    const auto on_tile = [&](std::int64_t done, std::int64_t /*total*/) {
      if (progress) progress(pass, begin + done, n);
      return !stop || !stop();
    };
    if (!model.prefill(
            prompt.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows)), cache,
            last ? last_pass_observer : nullptr, on_tile)) {
      return false;
    }
    begin += rows;
    if (!last) cache.commit(cache.length());
  }
  cache.truncate(n - 1);
  cache.commit(n - 1);
  cache.mark();
  return true;
}

bool PassCache::fill(const PrefillProgress& progress, const StopRequested& stop) {
  cache().reset();
  return fill_cache(s_.model, cache(), s_.context.prompt(), s_.pass, nullptr, progress, stop);
}

std::unique_ptr<Scorer> PassCache::scorer(const MethodSpec& method, int i,
                                          LayerObserver* observer) {
  return std::make_unique<ModelScorer>(s_.context.backend(), s_.model, cache(), observer,
                                       s_.options.sampling, s_.timer, method.phase(i));
}

void PassCache::run(std::span<const Token> tokens) {
  while (!tokens.empty()) {
    const auto n = std::min(tokens.size(), static_cast<std::size_t>(cache().max_append()));
    s_.model.forward(tokens.first(n), cache(), Logits::kAll);
    tokens = tokens.subspan(n);
  }
}

}  // namespace triforce
