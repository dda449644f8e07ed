#include "decode/longer_prompts.h"

#include <gtest/gtest.h>

#include "cpu/cpu_backend.h"
#include "triforce/plan.h"

namespace triforce {
namespace {

constexpr std::int64_t kVocab = 61;

class LongerPrompts : public ::testing::TestWithParam<cpu::Isa> {
 protected:
  std::unique_ptr<Backend> cpu_ = make_cpu_backend({1, GetParam()});
  ShortPasses backend_{*cpu_};
};

// Whatever is drafted, selected and kept.
TEST_P(LongerPrompts, GetWhatTheyGetAlone) {
  const ToyPair pair(backend_, DType::kBF16, kVocab);
  for (const Variant& v : variants()) {
    expect_longer_as_alone(backend_, pair, v.options, {200, 20, all_methods()}, v.name);
  }
}

TEST_P(LongerPrompts, InBatches) {
  const ToyPair pair(backend_, DType::kF32, kVocab);
  RunShape shape{200, 20, all_methods()};
  shape.lanes = 3;
  expect_longer_as_alone(backend_, pair, toy_options(), shape, "3 lanes");
}

TEST_P(LongerPrompts, WithHeadsInHostMemory) {
  const ToyPair pair(backend_, DType::kBF16, kVocab);
  for (const int near : {0, 1, 3}) {
    for (const int host_split : {0, 1}) {
      RunShape shape{200, 20, all_methods()};
      shape.homes = spread_homes(2, 2, near, host_split);
      expect_longer_as_alone(backend_, pair, toy_options(), shape,
                             fmt::format("{} near, {} of the host", near, host_split));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, LongerPrompts, ::testing::ValuesIn(cpu::usable_isas()),
                         [](const auto& param) {
                           std::string name = to_string(param.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A prompt that was cut short is no beginning of another.
TEST(LongerPromptsOnce, GoOnFromWholePromptsAlone) {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, std::nullopt});
  ShortPasses backend(*cpu);
  const ToyPair pair(backend, DType::kF32, kVocab);
  ToyRun run(backend, pair, toy_options(), {200, 20, all_methods()});
  const std::vector<Token> prompt = toy_prompt(200, kVocab, 1);
  const auto prefill = [&](const StopRequested& stop) {
    const auto kept = run.context.prefill(prompts_of({prompt}), {}, stop);
    return kept ? std::optional(kept->kept) : std::nullopt;
  };
  int asked = 0;
  EXPECT_EQ(prefill([&] { return ++asked > 3; }), std::nullopt);
  EXPECT_TRUE(run.context.prompt(0).empty());
  EXPECT_EQ(prefill({}), 0);
  EXPECT_EQ(prefill({}), 192);
  std::vector<Token> wrong = prompt;
  wrong[150] = kVocab;
  EXPECT_THROW(run.context.prefill(prompts_of({wrong}), {}, {}), Error);
  EXPECT_TRUE(run.context.prompt(0).empty());
  EXPECT_EQ(prefill({}), 0);
}

// What a batch copies takes no time, and is no beginning that was kept.
TEST(LongerPromptsOnce, CopiesAreCountedApart) {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, std::nullopt});
  ShortPasses backend(*cpu);
  const ToyPair pair(backend, DType::kF32, kVocab);
  RunShape shape{300, 20, all_methods()};
  shape.lanes = 2;
  ToyRun run(backend, pair, toy_options(), shape);
  const std::vector<Token> a = toy_prompt(300, kVocab, 1), b = toy_prompt(300, kVocab, 2);
  const auto prefill = [&](const std::vector<std::vector<Token>>& prompts) {
    const auto kept = run.context.prefill(prompts_of(prompts), {}, {});
    return std::pair(kept->kept, kept->copied);
  };
  const std::int64_t rows = run.context.model().max_rows(), whole = 299 / rows * rows;
  EXPECT_EQ(prefill({a, a}), std::pair(std::int64_t{0}, std::int64_t{300}));
  EXPECT_EQ(prefill({a, b}), std::pair(whole, std::int64_t{0}));
  EXPECT_EQ(prefill({a, b}), std::pair(2 * whole, std::int64_t{0}));
  // A lane that fails leaves no lane with a prompt.
  std::vector<Token> wrong = b;
  wrong[10] = kVocab;
  EXPECT_THROW(run.context.prefill(prompts_of({a, wrong}), {}, {}), Error);
  EXPECT_EQ(prefill({a, b}), std::pair(std::int64_t{0}, std::int64_t{0}));
}

}  // namespace
}  // namespace triforce
