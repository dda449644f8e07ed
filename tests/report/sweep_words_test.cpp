// The sentences of a sweep's screen: the best setting, notes that differ in a value, baselines that
// are shown once.
#include "report/sweep_words.h"

#include <gtest/gtest.h>

#include "report/sample_result.h"

namespace triforce {
namespace {

struct Of {
  double value, low, high;
};

// A case a speedup, of budgets 512, 1024, ...
SweepResult sweep_of(const std::vector<Of>& speedups) {
  SweepResult sweep;
  std::int64_t number = 0;
  for (const Of& s : speedups) {
    ++number;
    sweep.rows.push_back({{number, std::nullopt}, {{"budget", 512 * number}}, sample_result()});
    CaseResult& c = sweep.rows.back().result.cases[1];
    c.status = CaseStatus::kOk;
    c.lossless.equal_to_baseline = true;
    c.speedup->value = s.value;
    c.speedup->ci95_low = s.low;
    c.speedup->ci95_high = s.high;
    if (s.low > s.high) c.speedup->ci95_low.reset();
  }
  return sweep;
}

std::string best_of(const std::vector<Of>& speedups) {
  const std::vector<std::string> all = best_settings(sweep_of(speedups));
  return all.empty() ? "" : all.front();
}

TEST(BestSetting, IsTheFastestAndSaysWhatDiffers) {
  EXPECT_EQ(best_of({{1.5, 1.4, 1.6}, {2.5, 2.4, 2.6}, {2.0, 1.9, 2.1}}),
            "Best setting of triforce: budget 1024 (case 2), 2.50x (95% CI 2.40-2.60); no other "
            "interval overlaps.");
}

TEST(BestSetting, SaysWhatCannotBeToldFromIt) {
  EXPECT_EQ(best_of({{1.5, 1.4, 1.6}, {2.5, 2.4, 2.6}, {2.45, 2.3, 2.5}, {2.4, 2.3, 2.4}}),
            "Best setting of triforce: budget 1024 (case 2), 2.50x (95% CI 2.40-2.60); no "
            "difference from cases 3, 4, whose intervals overlap.");
  EXPECT_EQ(best_of({{2.4, 2.0, 2.6}, {2.5, 2.4, 2.6}}),
            "No setting of triforce differs from the fastest, budget 1024, 2.50x (95% CI "
            "2.40-2.60): all intervals overlap.");
  EXPECT_EQ(best_of({{2.4, 1, 0}, {2.5, 1, 0}}),
            "Best setting of triforce: budget 1024 (case 2), 2.50x; without intervals nothing "
            "tells it from the others.");
}

TEST(BestSetting, OfOneCaseOrOfWhatFailedThereIsNone) {
  EXPECT_EQ(best_of({{1.5, 1.4, 1.6}}), "");
  SweepResult sweep = sweep_of({{1.5, 1.4, 1.6}, {2.5, 2.4, 2.6}, {2.0, 1.9, 2.1}});
  sweep.rows[1].result.cases[1].lossless.equal_to_baseline = false;
  EXPECT_NE(best_settings(sweep).front().find("budget 1536 (case 3), 2.00x"), std::string::npos);
  sweep.rows[2].result.cases[1].status = CaseStatus::kOom;
  EXPECT_TRUE(best_settings(sweep).empty());
}

TEST(NotesOfCases, ThoseThatDifferInAValueAreOne) {
  const auto notes = merge_values({{"triforce: 6 verifications in all: too few", {1, 4}},
                                   {"no warm-up", {1, 2}},
                                   {"triforce: 12 verifications in all: too few", {2}},
                                   {"ar: 12 verifications in all: too few", {2}},
                                   {"noise 20.6%, of 2 processors", {5}},
                                   {"noise 7.25%, of 2 processors", {3}}});
  ASSERT_EQ(notes.size(), 4U);
  EXPECT_EQ(notes[0].text, "triforce: 6 to 12 verifications in all: too few");
  EXPECT_EQ(notes[0].numbers, (std::vector<std::int64_t>{1, 2, 4}));
  EXPECT_EQ(notes[1].text, "no warm-up");
  EXPECT_EQ(notes[2].text, "ar: 12 verifications in all: too few");
  EXPECT_EQ(notes[3].text, "noise 7.25 to 20.6%, of 2 processors");
  EXPECT_EQ(notes[3].numbers, (std::vector<std::int64_t>{3, 5}));
}

// Names hold numbers, and a place where tokens differ is more than a value.
TEST(NotesOfCases, OthersStay) {
  const std::vector<NoteOfCases> notes = {
      {"weights of llama-7B are random", {1}},
      {"weights of llama-13B are random", {2}},
      {"differs at prompt 0, position 22: expected 4026, found 2510", {1}},
      {"differs at prompt 1, position 3: expected 17, found 2510", {2}}};
  const auto merged = merge_values(notes);
  ASSERT_EQ(merged.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(merged[i].text, notes[i].text);
}

TEST(SweepTable, ABaselineThatIsSharedIsShownOnce) {
  SweepResult sweep = sweep_of({{1.5, 1.4, 1.6}, {2.5, 2.4, 2.6}, {2.0, 1.9, 2.1}});
  for (SweepRow& row : sweep.rows) row.result.run_id = fmt::format("run{}", row.number);
  const auto share = [&](std::size_t row, const char* run_id) {
    for (Sample& s : sweep.rows[row].result.cases[0].timing.samples) s.generated_in = run_id;
  };
  ASSERT_EQ(sweep.rows[0].result.cases[0].name, "ar");
  ASSERT_FALSE(sweep.rows[0].result.cases[0].timing.samples.empty());
  const auto rows_of_ar = [&] {
    const std::string table = to_table(sweep, {100, false});
    int rows = 0;
    for (std::size_t at = 0; (at = table.find("  ar  ", at)) != std::string::npos; ++at) ++rows;
    return rows;
  };
  EXPECT_EQ(rows_of_ar(), 3);
  share(1, "run1");
  share(2, "elsewhere");  // what is not in the table
  EXPECT_EQ(rows_of_ar(), 2);
  EXPECT_NE(to_table(sweep, {400, false}).find("ar: once for the cases that share"),
            std::string::npos);
}

}  // namespace
}  // namespace triforce
