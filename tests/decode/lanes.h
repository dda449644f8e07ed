// Each lane of a batch gets what it gets alone.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "decode/toy_models.h"

namespace triforce {

// Prompts of unequal lengths, the last of them once more.
inline std::vector<std::vector<Token>> toy_prompts(int lanes, std::int64_t longest,
                                                   std::int64_t vocab) {
  std::vector<std::vector<Token>> prompts;
  for (int l = 0; l + 1 < std::max(lanes, 2); ++l) {
    prompts.push_back(toy_prompt(longest - 17 * l, vocab, static_cast<std::uint32_t>(l)));
  }
  if (lanes > 1) prompts.push_back(prompts.back());
  return prompts;
}

// Generations of each method by one engine of shape.lanes lanes, and by one of a single lane for
// one prompt after the other.
inline void expect_lanes_as_alone(Backend& b, const ToyPair& pair, const SpeculationOptions& o,
                                  const RunShape& shape, const std::string& what) {
  const auto prompts = toy_prompts(shape.lanes, shape.max_prompt, pair.target.config.vocab);
  RunShape single = shape;
  single.lanes = 1;
  ToyRun alone(b, pair, o, single), together(b, pair, o, shape);
  ASSERT_TRUE(together.prefill_lanes(prompts));
  constexpr std::uint64_t kSeed = 5;
  std::vector<Method> methods = together.asked;
  methods.push_back(kBaselineMethod);
  std::map<Method, std::vector<RunMetrics>> found;
  for (const Method m : methods) {
    found[m] = together.methods.generate(m, shape.max_generated, kSeed, 0, {}, {});
  }
  for (std::size_t l = 0; l < prompts.size(); ++l) {
    ASSERT_TRUE(alone.prefill(prompts[l]));
    for (const Method m : methods) {
      const auto index = static_cast<std::uint32_t>(l);
      expect_equal_runs(found[m][l], alone.generate(m, shape.max_generated, kSeed, index),
                        what + ", " + to_string(m) + ", lane " + std::to_string(l));
    }
  }
}

}  // namespace triforce
