#include "decode/pass_cache.h"

#include "decode/fill.h"

namespace triforce {
namespace {

// In the order of kPassTable.
constexpr PerPass<const PassKind*> kKinds = {
    {&kFullKind, &kRetrievalKind, &kStreamingKind, &kStreamingKind}};

}  // namespace

const PassKind& kind_of(Pass pass) { return *kKinds[pass]; }

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
