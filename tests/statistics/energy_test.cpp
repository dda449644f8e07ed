// What samples say of a case's energy.
#include <gtest/gtest.h>

#include <cmath>

#include "statistics/by_prompt.h"

namespace triforce {
namespace {

Sample sample(int prompt, int repetition, std::int64_t tokens, double decode_ms, ByDomain energy) {
  Sample s;
  s.prompt = prompt;
  s.repetition = repetition;
  s.tokens = tokens;
  s.decode_ms = decode_ms;
  s.energy = energy;
  return s;
}

CaseResult of_samples(std::vector<Sample> samples) {
  CaseResult c;
  c.timing.samples = std::move(samples);
  return c;
}

TEST(EnergyOf, SumsAndMeansOfTimedSamples) {
  Sample warmup = sample(0, 0, 10, 1000, {1e6, 1e6, 1e6});
  warmup.warmup = true;
  const CaseResult c =
      of_samples({warmup, sample(0, 0, 10, 1000, {8, {}, 2}), sample(0, 1, 10, 1000, {32, {}, 8}),
                  sample(1, 0, 20, 2000, {60, {}, 20})});
  const auto e = energy_of(c, nullptr, {5, {}, 1});
  ASSERT_TRUE(e);
  // 1 and 4 J of the first prompt, 4 of the second: means of logarithms.
  EXPECT_EQ(e->joules_per_token.n, 3);
  EXPECT_NEAR(e->joules_per_token.geometric_mean.value_or(0), std::sqrt(8.0), 1e-12);
  EXPECT_EQ(e->joules_per_token.ci95_over, IntervalOver::kPrompts);
  EXPECT_NEAR(e->per_token.processor.value_or(0), 100.0 / 40, 1e-12);
  EXPECT_FALSE(e->per_token.memory);
  EXPECT_NEAR(e->per_token.gpu.value_or(0), 30.0 / 40, 1e-12);
  EXPECT_NEAR(e->above_idle.processor.value_or(0), (100 - 5 * 4) / 40.0, 1e-12);
  EXPECT_NEAR(e->above_idle.gpu.value_or(0), (30 - 1 * 4) / 40.0, 1e-12);
  EXPECT_NEAR(e->watts.value_or(0), 130.0 / 4, 1e-12);
  EXPECT_FALSE(e->saving);
}

TEST(EnergyOf, ASavingIsPaired) {
  const CaseResult base = of_samples({sample(0, 0, 10, 1000, {30, {}, {}}),
                                      sample(1, 0, 10, 1000, {800, {}, {}})}),
                   other = of_samples({sample(0, 0, 10, 500, {10, {}, {}}),
                                       sample(1, 0, 10, 500, {200, {}, {}}),
                                       sample(2, 0, 10, 500, {1, {}, {}})});
  const auto e = energy_of(other, &base, {});
  ASSERT_TRUE(e && e->saving && e->saving_ci95_low && e->saving_ci95_high);
  EXPECT_NEAR(*e->saving, std::sqrt(3.0 * 4.0), 1e-12);
  EXPECT_LT(*e->saving_ci95_low, 3.0);
  EXPECT_GT(*e->saving_ci95_high, 4.0);
  EXPECT_FALSE(e->above_idle.processor);  // idle power is not known
}

// Prompts that were decoded together took their time once.
TEST(EnergyOf, ABatchHasTheTimeOfItsLongest) {
  std::vector<Sample> samples = {sample(0, 0, 10, 1000, {20, {}, {}}),
                                 sample(1, 0, 10, 2000, {20, {}, {}})};
  for (Sample& s : samples) s.batch = 0;
  const auto e = energy_of(of_samples(samples), nullptr, {5, {}, {}});
  ASSERT_TRUE(e);
  EXPECT_NEAR(e->watts.value_or(0), 20, 1e-12);
  EXPECT_NEAR(e->above_idle.processor.value_or(0), (40 - 10) / 20.0, 1e-12);
  EXPECT_EQ(e->joules_per_token.ci95_over, IntervalOver::kRepetitions);  // of one batch
}

TEST(EnergyOf, NothingIsSaidWithoutEnergyOrOfAPart) {
  EXPECT_FALSE(energy_of(CaseResult{}, nullptr, {}));
  EXPECT_FALSE(energy_of(of_samples({sample(0, 0, 10, 1000, {})}), nullptr, {}));
  const CaseResult part =
      of_samples({sample(0, 0, 10, 1000, {1, 2, {}}), sample(1, 0, 10, 1000, {1, {}, {}})});
  const auto e = energy_of(part, nullptr, {});
  ASSERT_TRUE(e);
  EXPECT_TRUE(e->per_token.processor);
  EXPECT_FALSE(e->per_token.memory);
  // Of what all samples have, like the sums: the second read no memory.
  EXPECT_NEAR(e->joules_per_token.geometric_mean.value_or(0), 0.1, 1e-12);
  EXPECT_NEAR(e->joules_per_token.max.value_or(0), 0.1, 1e-12);
  // A saving is of what both cases have.
  const CaseResult whole =
      of_samples({sample(0, 0, 10, 1000, {2, 7, 1}), sample(1, 0, 10, 1000, {2, 9, 1})});
  EXPECT_NEAR(energy_of(part, &whole, {})->saving.value_or(0), 2, 1e-12);
  const CaseResult others =
      of_samples({sample(0, 0, 10, 1000, {{}, 7, 1}), sample(1, 0, 10, 1000, {{}, 9, 1})});
  EXPECT_FALSE(energy_of(part, &others, {})->saving);
  // A counter that did not move in a sample: no mean of logarithms.
  const CaseResult still =
      of_samples({sample(0, 0, 10, 1, {0, {}, {}}), sample(1, 0, 10, 1, {1, {}, {}})});
  const auto s = energy_of(still, nullptr, {});
  ASSERT_TRUE(s);
  EXPECT_FALSE(s->joules_per_token.geometric_mean);
  EXPECT_NEAR(s->per_token.processor.value_or(0), 0.05, 1e-12);
}

TEST(CostAt, IsOfAnHoursTokens) {
  EXPECT_NEAR(cost_at(3.6, 1000).eur_per_million_tokens.value_or(0), 1.0, 1e-12);
  EXPECT_FALSE(cost_at(3.6, std::nullopt).eur_per_million_tokens);
  EXPECT_FALSE(cost_at(3.6, 0).eur_per_million_tokens);
}

}  // namespace
}  // namespace triforce
