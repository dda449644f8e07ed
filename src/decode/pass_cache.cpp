#include "decode/pass_cache.h"

#include <algorithm>

#include "decode/lane_passes.h"

namespace triforce {
namespace {

// In the order of kPassTable.
constexpr PerPass<const PassKind*> kKinds = {
    {&kFullKind, &kRetrievalKind, &kStreamingKind, &kQuantisedKind, &kStreamingKind, &kLookupKind}};

// Of a method where nothing verifies.
class UnverifiedScorer final : public ModelScorer {
 public:
  UnverifiedScorer(const PassSetup& s, PassCache& pass, std::vector<LaneCache> caches, Phase phase,
                   Precision precision)
      : ModelScorer(s.context.backend(), s.model, std::move(caches), s.options.sampling, s.timer,
                    phase, precision),
        pass_(pass) {}
  void commit(int lane, std::int64_t length) override {
    pass_.hand_over(lane, length);
    ModelScorer::commit(lane, length);
  }

 private:
  PassCache& pass_;
};

}  // namespace

const PassKind& kind_of(Pass pass) { return *kKinds[pass]; }

bool fill_cache(LlamaModel& model, KvCache& cache, std::span<const Token> prompt, Pass pass,
                LayerObserver* last_pass_observer, const PrefillProgress& progress,
                const StopRequested& stop) {
  const auto n = static_cast<std::int64_t>(prompt.size());
  const std::int64_t max_rows = std::min(cache.max_append(), model.max_block());
  if (stop && stop()) return false;
  for (std::int64_t begin = cache.length(); begin < n;) {
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

PrefillProgress progress_of_lane(const PrefillProgress& progress, std::int64_t before,
                                 std::int64_t total) {
  if (!progress) return {};
  return [&progress, before, total](Pass pass, std::int64_t done, std::int64_t /*total*/) {
    progress(pass, before + done, total);
  };
}

std::unique_ptr<Scorer> PassRunner::scorer(const MethodSpec& method, int i,
                                           std::span<LayerObserver* const> /*observers*/) {
  TF_CHECK(spec_of(s_.pass).net != Net::kNone, "{}: pass {}, {}, has no model", method.name, i,
           to_string(s_.pass));
  return nullptr;
}

TensorView PassRunner::feed_unverified(int /*lane*/, Token /*token*/) {
  TF_CHECK(false, "{} has no model", to_string(s_.pass));
  return {};
}

void PassCache::hand_over(int lane, std::int64_t length) {
  if (StoredCache* const from = taking(lane)) from->hand_over(s_.context.cache(lane), length);
}

TensorView PassCache::feed_unverified(int lane, Token token) {
  const PassPart part{std::span(&token, 1), &cache(lane)};
  const TensorView logits =
      s_.model.forward(std::span(&part, 1), Logits::kLast, RowPath::kInvariant, precision());
  hand_over(lane, cache(lane).length());
  cache(lane).commit(cache(lane).length());
  return logits;
}

bool PassCache::fill(int lane, const PrefillProgress& progress, const StopRequested& stop) {
  cache(lane).reset();
  return fill_cache(s_.model, cache(lane), s_.context.prompt(lane), s_.pass, nullptr, progress,
                    stop);
}

std::vector<LaneCache> PassCache::lane_caches(std::span<LayerObserver* const> observers) {
  std::vector<LaneCache> all;
  for (int l = 0; l < lanes(); ++l) {
    all.push_back({&cache(l), observers[static_cast<std::size_t>(l)]});
  }
  return all;
}

std::unique_ptr<Proposer> PassCache::proposer(const MethodSpec& method, const DraftTree& asked,
                                              std::span<LayerObserver* const> observers) {
  return std::make_unique<ModelProposer>(s_.context.backend(), scorer(method, 0, observers), asked,
                                         s_.options.acceptance, s_.timer);
}

std::unique_ptr<Scorer> PassCache::scorer(const MethodSpec& method, int i,
                                          std::span<LayerObserver* const> observers) {
  if (!method.is_lossless()) {
    return std::make_unique<UnverifiedScorer>(s_, *this, lane_caches(observers), method.phase(i),
                                              precision());
  }
  return std::make_unique<ModelScorer>(s_.context.backend(), s_.model, lane_caches(observers),
                                       s_.options.sampling, s_.timer, method.phase(i), precision());
}

void PassCache::run(std::span<const Token> tokens) {
  std::vector<PassPart> parts;
  const auto run = [&](const LanePass& pass) {
    parts.clear();
    for (int l = 0; l < pass.lanes; ++l) {
      parts.push_back({tokens.subspan(static_cast<std::size_t>(pass.begin),
                                      static_cast<std::size_t>(pass.rows)),
                       &cache(pass.first_lane + l)});
    }
    s_.model.forward(parts, Logits::kAll, RowPath::kInvariant, precision());
  };
  for_each_lane_pass(lanes(), std::ssize(tokens), s_.model.max_logits(), cache(0).max_append(),
                     run);
  for (int l = 0; l < lanes(); ++l) cache(l).truncate(cache(l).committed());
}

}  // namespace triforce
