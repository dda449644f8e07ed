#include "report/equal_table.h"

#include <gtest/gtest.h>

#include "report/sample_result.h"

namespace triforce {
namespace {

// Cases of a recipe: budgets 64, 256 and 1024 of two selections, with these rates of acceptance.
SweepResult sweep_of(const std::vector<std::pair<std::string, std::vector<int>>>& accepted) {
  SweepResult sweep;
  SweepRecipe& recipe = sweep.recipes.emplace_back();
  recipe.name = "tiny-selection";
  recipe.equal = EqualView{"budget", CaseMetric::kAcceptance};
  for (const auto& [selection, percents] : accepted) {
    for (std::size_t i = 0; i < percents.size(); ++i) {
      SweepRow& row = sweep.rows.emplace_back();
      row.recipe = recipe.name;
      row.options = {{"budget", std::int64_t{64} << (2 * i)}, {"selection", selection}};
      row.result = sample_result();
      row.result.cases = {row.result.cases[1]};
      LevelCounters& outer = row.result.cases[0].acceptance.back();
      outer.accepted = percents[i];
      outer.rejected = 100 - percents[i];
    }
  }
  return sweep;
}

TEST(EqualTable, SaysWhereEachLineReachesALevel) {
  const SweepResult sweep =
      sweep_of({{"mean-key", {50, 70, 90}}, {"quest", {40, 60, 80}}, {"other", {97, 96, 95}}});
  const TextTable t = equal_table(sweep, sweep.recipes.front());
  EXPECT_EQ(t.title, "tiny-selection: budget for equal acceptance");
  EXPECT_EQ(t.head, (std::vector<std::string>{"method", "selection", "0.4", "0.5", "0.6", "0.7",
                                              "0.8", "0.9"}));
  ASSERT_EQ(t.rows.size(), 3U);
  EXPECT_EQ(t.rows[0], (std::vector<std::string>{"triforce", "mean-key", "<= 64", "<= 64", "128",
                                                 "256", "512", "1024"}));
  EXPECT_EQ(t.rows[1], (std::vector<std::string>{"triforce", "quest", "<= 64", "128", "256", "512",
                                                 "1024", "> 1024"}));
  EXPECT_EQ(t.rows[2][7], "<= 64");  // by chance it is best there, but good enough
}

// What is less where a line is better is reached from above; one place alone is no line.
TEST(EqualTable, FallingLinesAndLonePlaces) {
  SweepResult sweep = sweep_of({{"mean-key", {50, 70, 90}}, {"lone", {10}}});
  sweep.recipes.front().equal->metric = CaseMetric::kMsPerToken;
  for (std::size_t i = 0; i < 3; ++i) {
    sweep.rows[i].result.cases[0].timing.ms_per_token.geometric_mean =
        30.0 - 10.0 * static_cast<double>(i);
  }
  const TextTable t = equal_table(sweep, sweep.recipes.front());
  EXPECT_EQ(t.head,
            (std::vector<std::string>{"method", "selection", "10", "15", "20", "25", "30"}));
  ASSERT_EQ(t.rows.size(), 1U);
  EXPECT_EQ(t.rows[0], (std::vector<std::string>{"triforce", "mean-key", "1024", "512", "256",
                                                 "128", "<= 64"}));
}

// What chance does to a flat line.
TEST(EqualTable, LinesThatDoNotRise) {
  SweepResult sweep =
      sweep_of({{"high", {94, 95, 93}}, {"low", {62, 60, 61}}, {"top", {50, 90, 50}}});
  sweep.rows[7].options.emplace_back("rebuild", std::string("token"));  // a line of its own
  const TextTable t = equal_table(sweep, sweep.recipes.front());
  EXPECT_EQ(t.head, (std::vector<std::string>{"method", "selection", "rebuild", "0.5", "0.6", "0.7",
                                              "0.8", "0.9"}));
  ASSERT_EQ(t.rows.size(), 3U);
  EXPECT_EQ(t.rows[0].back(), "<= 64");
  EXPECT_EQ(t.rows[1].back(), "> 1024");
  EXPECT_EQ(t.rows[2].back(), "> 1024");
  sweep.rows[7].options.pop_back();
  EXPECT_EQ(equal_table(sweep, sweep.recipes.front()).rows[2].back(), "256");
  sweep.rows[7].result.cases[0].status = CaseStatus::kTimeout;
  EXPECT_EQ(equal_table(sweep, sweep.recipes.front()).rows[2].back(), "> 1024");
}

TEST(EqualTable, IsEmptyWithoutLinesThatDiffer) {
  SweepResult sweep = sweep_of({{"mean-key", {50, 50}}});
  EXPECT_TRUE(equal_table(sweep, sweep.recipes.front()).rows.empty());
  sweep = sweep_of({{"mean-key", {50, 60}}});
  EXPECT_EQ(equal_table(sweep, sweep.recipes.front()).rows.size(), 1U);
  sweep.recipes.front().equal->axis = "gamma";
  EXPECT_TRUE(equal_table(sweep, sweep.recipes.front()).rows.empty());
  sweep.recipes.front().equal.reset();
  EXPECT_TRUE(equal_table(sweep, sweep.recipes.front()).rows.empty());
}

}  // namespace
}  // namespace triforce
