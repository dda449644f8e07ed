// Prompts that go on from shorter ones, in one context: each run gets what it gets alone.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/forwarding_backend.h"
#include "decode/toy_models.h"

namespace triforce {

// Processes prompts in passes of 64 rows, so that short prompts have several.
class ShortPasses : public ForwardingBackend {
 public:
  explicit ShortPasses(Backend& to) : ForwardingBackend(to, traits_of(to)) {}

 private:
  static Traits traits_of(const Backend& to) {
    Traits t = to.traits();
    t.prefill_rows = 64;
    return t;
  }
};

struct PromptLength {
  std::int64_t tokens;
  std::uint32_t text;  // a prompt of one text begins as a shorter one does
  std::int64_t kept;   // of the prompt before
};

// 64 rows a pass; the last token of a prompt is decoding's.
inline std::vector<PromptLength> prompt_lengths() {
  return {{70, 1, 0}, {128, 1, 64}, {200, 1, 64}, {129, 1, 128}, {100, 2, 0}, {200, 2, 64}};
}

// Generations of each method behind each of these prompts, one after the other in one context, and
// in a context of each alone. `shape` has the longest.
inline void expect_longer_as_alone(Backend& b, const ToyPair& pair, const SpeculationOptions& o,
                                   const RunShape& shape, const std::string& what) {
  const std::int64_t vocab = pair.target.config.vocab;
  RunShape run = possible(shape, o);
  run.longest_prompt = 8 * shape.max_prompt;  // in a context of that size keys are split otherwise
  run.shortest_prompt = 70;
  const auto context =
      std::make_shared<Context>(b, pair.target, context_shape(b, pair.target, o, run));
  for (const PromptLength& length : prompt_lengths()) {
    const std::string of =
        fmt::format("{}, {} tokens of text {}", what, length.tokens, length.text);
    run.max_prompt = length.tokens;
    context->set_room(Context::shape_of(run, o));
    Methods methods(context, &pair.draft, o, run.methods);
    std::vector<std::vector<Token>> prompts;
    for (int l = 0; l < run.lanes; ++l) {
      const auto text = 10 * length.text + static_cast<std::uint32_t>(l);
      prompts.push_back(toy_prompt(shape.max_prompt, vocab, text));
      prompts.back().resize(static_cast<std::size_t>(length.tokens));
    }
    const std::optional<PromptsKept> kept = context->prefill(prompts_of(prompts), {}, {});
    if (context->model().max_rows() == 64) {  // more for trees, long drafts and batches
      EXPECT_EQ(kept.value_or(PromptsKept{}).kept, run.lanes * length.kept) << of;
    }
    ASSERT_FALSE(methods.prefill_methods({}, {}).interrupted);
    RunShape own = shape;
    own.max_prompt = length.tokens;
    ToyRun alone(b, pair, o, own);
    ASSERT_TRUE(alone.prefill_lanes(prompts));
    for (int l = 0; l < run.lanes; ++l) {
      EXPECT_EQ(methods.probs_after_prompt(l), alone.methods.probs_after_prompt(l)) << of;
      EXPECT_EQ(methods.selected_chunks(l), alone.methods.selected_chunks(l)) << of;
    }
    for (const Method m : alone.asked) {
      const auto found = methods.generate(m, shape.max_generated, 5, 3, {}, {});
      const auto expected = alone.methods.generate(m, shape.max_generated, 5, 3, {}, {});
      for (std::size_t l = 0; l < found.size(); ++l) {
        expect_equal_runs(found[l], expected[l], fmt::format("{}, {}", of, to_string(m)));
      }
    }
  }
}

}  // namespace triforce
