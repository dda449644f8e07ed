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
      lanes_(make_lanes(shape.lanes,
                        [&](int /*lane*/, LaneMemory& memory) {
                          const LocalShape t = target.shape();
                          const int layers = target.config.layers;
                          Lane lane{
                              std::make_unique<FullCache>(backend, layers, t.kv_heads, t.head_dim,
                                                          sizes.capacity, sizes.append,
                                                          target.dtype, shape.homes, &memory),
                              std::make_unique<LastQueries>(backend, layers, t.heads, t.head_dim),
                              {}};
                          lane.prompt.reserve(static_cast<std::size_t>(shape.max_prompt));
                          return lane;
                        })),
      model_(backend, target, sizes.capacity, sizes.rows, shape.exact_rows, ranks,
             block_of(shape, sizes, target.config.hidden)),
      exact_(backend, exact_shape(shape, target.shape())) {}

Context::~Context() = default;

void Context::set_room(const Shape& shape) {
  TF_CHECK(shape.lanes == shape_.lanes && shape.exact_rows == shape_.exact_rows &&
               shape.max_round == shape_.max_round,
           "a context of {} lanes, rounds of {} and passes of {} for one of {}, {} and {}",
           shape_.lanes, shape_.max_round, shape_.exact_rows, shape.lanes, shape.max_round,
           shape.exact_rows);
  if (shape.capacity == shape_.capacity) return;
  for (Lane& lane : lanes_) lane.cache->set_capacity(shape.capacity);
  shape_.max_prompt = shape.max_prompt;
  shape_.capacity = shape.capacity;
}

std::int64_t Context::keep_beginning(Lane& lane, PromptTokens prompt) {
  const PromptTokens held(lane.prompt);
  const auto common = std::ranges::mismatch(held, prompt).in1 - held.begin();
  // Its last token is decoding's.
  const std::int64_t filled = std::min(std::ssize(held), std::ssize(prompt)) - 1;
  const std::int64_t rows = model_.max_rows();
  const std::int64_t kept = std::min<std::int64_t>(common, std::max<std::int64_t>(0, filled));
  lane.prompt.clear();
  lane.cache->forget_from(kept / rows * rows);
  return lane.cache->length();
}

// Lanes have their prompts when all are processed: whatever ends it before leaves none.
std::optional<PromptsKept> Context::prefill(std::span<const PromptTokens> prompts,
                                            const PrefillProgress& progress,
                                            const StopRequested& stop) {
  TF_CHECK(std::ssize(prompts) == lanes(), "{} prompts of {} lanes", prompts.size(), lanes());
  std::int64_t total = 0, before = 0;
  for (const PromptTokens p : prompts) {
    TF_CHECK(std::ssize(p) >= 2 && std::ssize(p) <= shape_.max_prompt,
             "prompt of {} tokens, at most {}", p.size(), shape_.max_prompt);
    total += std::ssize(p);
  }
  std::vector<std::int64_t> kept_of_lane;
  for (std::size_t l = 0; l < prompts.size(); ++l) {
    kept_of_lane.push_back(keep_beginning(lanes_[l], prompts[l]));
  }
  PromptsKept kept;
  for (std::size_t l = 0; l < prompts.size(); ++l) {
    Lane& lane = lanes_[l];
    const auto same = std::ranges::find_if(
        prompts.first(l), [&](PromptTokens p) { return std::ranges::equal(p, prompts[l]); });
    if (const auto i = static_cast<std::size_t>(same - prompts.begin()); i < l) {
      lane.cache->copy_prompt(*lanes_[i].cache);
      lane.queries->copy(*lanes_[i].queries);
      kept.copied += std::ssize(prompts[l]);
    } else if (fill_cache(model_, *lane.cache, prompts[l], kFullPass, lane.queries.get(),
                          progress_of_lane(progress, before, total), stop)) {
      kept.kept += kept_of_lane[l];
    } else {
      return std::nullopt;
    }
    before += std::ssize(prompts[l]);
  }
  backend_.synchronize();
  for (std::size_t l = 0; l < prompts.size(); ++l) {
    lanes_[l].prompt.assign(prompts[l].begin(), prompts[l].end());
  }
  return kept;
}

void Context::lend(TensorView memory) {
  TF_CHECK(memory.data == nullptr || memory.bytes() >= shape_.lent_bytes, "{} bytes lent, {} said",
           memory.bytes(), shape_.lent_bytes);
  model_.lend(memory);
}

}  // namespace triforce
