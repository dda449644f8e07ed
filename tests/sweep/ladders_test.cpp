#include "sweep/ladders.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/sample_result.h"

namespace triforce {
namespace {

struct At {
  std::int64_t tokens;
  std::optional<double> speedup, low, high;
};

// One method at these lengths.
SweepResult sweep_of(const std::vector<At>& all) {
  SweepResult sweep;
  for (const At& at : all) {
    SweepRow& row = sweep.rows.emplace_back();
    row.number = std::ssize(sweep.rows);
    row.options = {{"prefill", at.tokens}};
    row.result = sample_result();
    row.result.cases = {sample_triforce()};
    for (auto& [name, value] : row.result.cases[0].params) {
      if (name == "prefill") value = at.tokens;
    }
    Speedup& s = row.result.cases[0].speedup.emplace();
    s.value = at.speedup;
    s.ci95_low = at.low;
    s.ci95_high = at.high;
  }
  return sweep;
}

std::vector<LadderCrossing> crossings(const std::vector<At>& all) {
  return ladders_of(sweep_of(all).rows).front().crossings;
}

std::vector<std::string> warnings(const SweepResult& sweep) {
  std::vector<std::string> lines;
  for (const SweepLadder& ladder : ladders_of(sweep.rows)) {
    for (const LadderStep& step : ladder.steps) lines.push_back(step.text);
  }
  return lines;
}

// 2^x: halfway between 2^a and 2^b in their logarithms lies 2^((a + b) / 2).
TEST(Ladder, CrossingsAreInterpolatedInLogarithms) {
  const auto c = crossings({{1024, 0.5, {}, {}}, {4096, 2, {}, {}}, {16384, 2, {}, {}}});
  ASSERT_EQ(c.size(), 1U);
  EXPECT_TRUE(c[0].pays_from_there);
  EXPECT_NEAR(c[0].tokens, 2048, 1e-6);
  EXPECT_FALSE(c[0].low || c[0].high);
}

TEST(Ladder, AnIntervalEndsWhereItDecides) {
  // Below: the upper end falls from 4 at 4,096 to 0.25 at 256, so it is 1 at 1,024. Above: the
  // lower end rises from 0.5 at 4,096 to 2 at 16,384, so it is 1 at 8,192.
  const auto c = crossings({{256, 0.125, 0.1, 0.25}, {4096, 1.5, 0.5, 4}, {16384, 3, 2, 5}});
  ASSERT_EQ(c.size(), 1U);
  ASSERT_TRUE(c[0].low && c[0].high);
  EXPECT_NEAR(*c[0].low, 1024, 1e-6);
  EXPECT_NEAR(*c[0].high, 8192, 1e-6);
  EXPECT_LT(*c[0].low, c[0].tokens);
  EXPECT_GT(*c[0].high, c[0].tokens);
}

TEST(Ladder, AnIntervalThatNeverDecidesIsOpen) {
  const auto c = crossings({{1024, 2, 0.9, 4}, {4096, 1.2, 0.8, 2}, {16384, 0.5, 0.4, 0.6}});
  ASSERT_EQ(c.size(), 1U);
  EXPECT_FALSE(c[0].pays_from_there);
  EXPECT_FALSE(c[0].low);
  ASSERT_TRUE(c[0].high);
  EXPECT_GT(*c[0].high, c[0].tokens);
  EXPECT_LT(*c[0].high, 16384);
  // An undecided rung between two crossings is within both intervals.
  const auto both = crossings({{256, 0.5, 0.4, 0.6}, {1024, 1.1, 0.9, 1.3}, {4096, 0.5, 0.4, 0.6}});
  ASSERT_EQ(both.size(), 2U);
  for (const LadderCrossing& each : both) {
    ASSERT_TRUE(each.low && each.high);
    EXPECT_TRUE(256 < *each.low && *each.low < 1024 && 1024 < *each.high && *each.high < 4096);
  }
}

TEST(Ladder, LinesSayFromWhereToWhere) {
  const auto line = [](const std::vector<At>& all) {
    return ladders_of(sweep_of(all).rows).front().text.value_or("none");
  };
  EXPECT_EQ(line({{1024, 0.5, {}, {}}, {4096, 2, {}, {}}}),
            "triforce: pays from 2048 tokens; 0.50x at 1024 to 2.00x at 4096 tokens");
  EXPECT_EQ(line({{256, 0.125, 0.1, 0.25}, {4096, 1.5, 0.5, 4}, {16384, 3, 2, 5}}),
            "triforce: pays from 2605 tokens (95% CI 1024-8192); 0.12x at 256 to 3.00x at 16384 "
            "tokens");
  EXPECT_EQ(line({{1024, 2, 0.9, 4}, {4096, 0.5, 0.4, 0.6}}),
            "triforce: stops paying at 2048 tokens (95% CI below 1024 to 2820); 2.00x at 1024 to "
            "0.50x at 4096 tokens");
  EXPECT_EQ(line({{1024, 1.5, 1.4, 1.6}, {4096, 2, 1.9, 2.1}}),
            "triforce: pays at every length; 1.50x at 1024 to 2.00x at 4096 tokens");
  EXPECT_EQ(line({{1024, 0.5, 0.4, 0.6}, {4096, {}, {}, {}}, {8192, 0.6, 0.5, 0.7}}),
            "triforce: pays at no length; 0.50x at 1024 to 0.60x at 8192 tokens");
  EXPECT_EQ(line({{1024, 0.5, 0.4, 0.6}, {4096, {}, {}, {}}}), "none");
}

void accept(SweepResult& sweep, std::size_t row, int percent, double half_width) {
  LevelResult& level = sweep.rows[row].result.cases[0].acceptance.back();
  level.accepted = percent;
  level.rejected = 100 - percent;
  level.ci95.emplace().acceptance_rate = {percent / 100.0 - half_width,
                                          percent / 100.0 + half_width};
}

TEST(Ladder, AStepOfAcceptanceIsTold) {
  const std::vector<At> lengths = {{1024, 2, {}, {}}, {2048, 2, {}, {}}, {4096, 2, {}, {}}};
  SweepResult sweep = sweep_of(lengths);
  accept(sweep, 0, 90, 0.02);
  accept(sweep, 1, 88, 0.02);
  accept(sweep, 2, 40, 0.02);
  for (SweepRow& row : sweep.rows) row.result.cases[0].validity.notes = {"known: 1 layer"};
  sweep.rows[2].result.cases[0].validity.notes = {
      "known: 2 layers", "the drafter is read at up to 4224 positions, of which it has 2048"};
  EXPECT_EQ(warnings(sweep),
            (std::vector<std::string>{
                "triforce: outer acceptance falls off a step, from 0.880 .86-.90 at 2048 to 0.400 "
                ".38-.42 at 4096 tokens; there the drafter is read at up to 4224 positions, of "
                "which it has 2048"}));
  accept(sweep, 2, 80, 0.02);  // too little
  EXPECT_TRUE(warnings(sweep).empty());
  accept(sweep, 2, 40, 0.5);  // it may be chance
  EXPECT_TRUE(warnings(sweep).empty());
  accept(sweep, 0, 100, 0);  // a slope of equal parts
  accept(sweep, 1, 75, 0.02);
  accept(sweep, 2, 48, 0.02);
  EXPECT_EQ(warnings(sweep).size(), 1U);  // the larger part
}

// Other options, methods and recipes are ladders of their own; failed cases are no rungs.
TEST(Ladder, IsOfOneSetting) {
  SweepResult sweep = sweep_of({{4096, 2, {}, {}},
                                {1024, 1.5, {}, {}},
                                {1024, 3, {}, {}},
                                {4096, 4, {}, {}},
                                {8192, 5, {}, {}}});
  for (std::size_t i = 0; i < 5; ++i) {
    sweep.rows[i].options.emplace_back("budget", std::int64_t{i < 2 ? 64 : 128});
  }
  sweep.rows[4].result.cases[0].status = CaseStatus::kOom;
  const std::vector<SweepLadder> ladders = ladders_of(sweep.rows);
  ASSERT_EQ(ladders.size(), 2U);
  EXPECT_EQ(ladders[0].lengths, (std::vector<std::int64_t>{1024, 4096}));
  EXPECT_EQ(ladders[1].lengths.size(), 2U);
  EXPECT_EQ(ladders[1].text,
            "budget 128, triforce: pays at every length; 3.00x at 1024 to 4.00x at 4096 tokens");
  sweep.rows[0].recipe = "tiny-fig5";
  EXPECT_EQ(ladders_of(sweep.rows).size(), 1U);
}

TEST(Ladder, ItsTableHasPredictionsAndInnerLevels) {
  SweepResult sweep = sweep_of({{1024, 0.5, {}, {}}, {4096, 2, {}, {}}});
  sweep.ladders = ladders_of(sweep.rows);
  const std::string table = to_table(sweep, {.width = 200});
  EXPECT_NE(table.find("predicted"), std::string::npos);
  EXPECT_NE(table.find("inner"), std::string::npos);
  EXPECT_NE(table.find("Against the context\n- triforce: pays from 2048 tokens"),
            std::string::npos);
  EXPECT_EQ(table.find("Best setting"), std::string::npos);
  EXPECT_NE(to_markdown(sweep).find("**Against the context**"), std::string::npos);
}

}  // namespace
}  // namespace triforce
