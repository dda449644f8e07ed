// What is printed never contradicts itself: over made-up results of all kinds.
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>

#include "compare/made_result.h"

namespace triforce {
namespace {

// Rows of the Markdown table, without their edges.
std::vector<std::vector<std::string>> rows_of(const std::string& markdown) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ") || line.starts_with("| ---")) continue;
    std::vector<std::string>& row = rows.emplace_back();
    std::istringstream cells(line.substr(2));
    for (std::string cell; std::getline(cells, cell, '|');) {
      if (cell.starts_with(' ')) cell.erase(0, 1);
      while (cell.ends_with(' ')) cell.pop_back();
      row.push_back(cell);
    }
  }
  return rows;
}

int sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

// Contradictions among the cells of a table; each of them as text.
std::vector<std::string> contradictions(const std::string& markdown) {
  std::vector<std::string> found;
  for (const std::vector<std::string>& row : rows_of(markdown)) {
    if (row.size() < 7 || row[0] == "case" || row[4] == "-") continue;
    const double base = std::stod(row[2]), now = std::stod(row[3]), change = std::stod(row[4]);
    const std::string text = fmt::format("{}", fmt::join(row, " "));
    // Figures that are shown as equal may differ.
    if (sign_of(now - base) * sign_of(change) < 0) found.push_back("sign: " + text);
    if (row[4].starts_with('-') && row[4].find_first_of("123456789") == row[4].npos) {
      found.push_back("-0: " + text);
    }
    if (row[6] == "faster" && !(now < base)) found.push_back("faster: " + text);
    if (row[6] == "SLOWER" && !(now > base)) found.push_back("slower: " + text);
    if (row[6] == "LOWER" && !(now < base)) found.push_back("lower: " + text);
    if (row[5] == "-") continue;
    double low = 0, high = 0;
    const bool percent = row[5].find('%') != row[5].npos, to = row[5].find(" to ") != row[5].npos;
    const char* const format =
        percent ? (to ? "%lf%% to %lf%%" : "%lf%%-%lf%%") : (to ? "%lf to %lf" : "%lf-%lf");
    if (std::sscanf(row[5].c_str(), format, &low, &high) != 2 || low > high) {
      found.push_back("interval: " + text);
      continue;
    }
    // Both are rounded.
    const double slack = percent ? 0.11 : 0.0011;
    if (change < low - slack || change > high + slack) found.push_back("outside: " + text);
  }
  return found;
}

TEST(Signs, APlantedContradictionIsFound) {
  const std::string head = "| case | metric | base | new | change | interval | verdict |\n";
  const auto of = [&](const char* row) { return contradictions(head + row); };
  EXPECT_TRUE(of("| a | ms_per_token | 61.35 | 60.87 | -0.8% | -1.0% to 0.2% | same |\n").empty());
  EXPECT_EQ(of("| a | ms_per_token | 61.35 | 60.87 | +7.1% | - | ambiguous |\n").size(), 1U);
  EXPECT_EQ(of("| a | ms_per_token | 63.09 | 63.08 | +0.2% | 0.1%-0.3% | same |\n").size(), 1U);
  EXPECT_EQ(of("| a | ms_per_token | 2.000 | 2.000 | -0.0% | - | same |\n").size(), 1U);
  EXPECT_EQ(of("| a | ms_per_token | 2.000 | 2.100 | +5.0% | 1.0%-2.0% | SLOWER |\n").size(), 1U);
  EXPECT_EQ(of("| a | ms_per_token | 2.000 | 2.000 | 0.0% | - | faster |\n").size(), 1U);
  EXPECT_EQ(of("| a | acceptance.outer | 0.8000 | 0.7000 | -0.1000 | +0.1 +0.2 | lower |\n").size(),
            1U);
}

TEST(Signs, OfChangesAreThoseOfTheFiguresBesideThem) {
  std::mt19937_64 engine(20261125);
  std::size_t rows = 0;
  for (int i = 0; i < 120; ++i) {
    const auto runs = std::size_t{1} + engine() % 4 * (engine() % 4);  // 1 to 10
    Made made{.prompts = 1 + int(engine() % 4),
              .repetitions = 1 + int(engine() % 3),
              .rounds = 20,
              .sampled = engine() % 2 == 0};
    made.noise = made_uniform(engine) * 0.2;
    ResultFile files[2] = {{"a", {}}, {"b", {}}};
    for (int side = 0; side < 2; ++side) {
      if (side == 1 && made.sampled) made.token_seed = engine();
      for (std::size_t run = 0; run < runs; ++run) {
        Made one = made;
        one.time_seed = engine();
        // Runs of one build that differ by as much as builds, and some of many digits.
        one.ms *= (1 + 0.3 * (made_uniform(engine) - 0.5)) * (engine() % 5 == 0 ? 1.2 : 1);
        if (i % 3 == 0) one.ms *= 37.5;
        const std::string name = fmt::format("{}{}", side, run);
        files[side].results.push_back(made_file(name, one).results[0]);
      }
    }
    const Comparison c = compare_made(files[0], files[1]);
    const std::string text = to_markdown(c);
    rows += rows_of(text).size();
    for (const std::string& contradiction : contradictions(text)) {
      ADD_FAILURE() << "result " << i << " of " << runs << " runs: " << contradiction;
    }
    for (const CaseComparison& one : c.cases) {
      for (const MetricComparison& m : one.metrics) {
        if (m.metric != "ms_per_token" || !m.change) continue;
        EXPECT_NEAR(*m.other / *m.base, *m.change, 1e-9 * *m.change);
      }
    }
    EXPECT_EQ(c.verdict.find("see above"), std::string::npos);
  }
  EXPECT_GT(rows, 500U);
}

TEST(Signs, TheVerdictSaysItselfWhatIsUndecided) {
  const Made few{.repetitions = 3};
  const std::string same =
      compare_made(made_file("a", few), made_file("b", other_times(few))).verdict;
  EXPECT_NE(same.find("LATENCY UNDECIDED in 2 cases: 12 samples; at a noise of 0."),
            std::string::npos)
      << same;
  ResultFile now = made_file("b", other_times(few));
  now.results[0].cases[1].validity = {false, {"throttled clocks: sw_thermal"}, {}};
  const std::string each = compare_made(made_file("a", few), now).verdict;
  EXPECT_NE(each.find("LATENCY UNDECIDED in 2 cases: ar: 12 samples; "), std::string::npos) << each;
  EXPECT_TRUE(each.ends_with("; and 1 more.")) << each;
}

}  // namespace
}  // namespace triforce
