// What a comparison looks like: golden texts, widths, colours, XML.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "compare/made_result.h"
#include "report/golden.h"

namespace triforce {
namespace {

// (No golden JSON: its numbers have more digits than mathematics libraries agree on.)
// Something of everything: a regression, an ambiguity, a missing case, a name with markup.
Comparison sample_comparison() {
  ResultFile base = made_file("base.json", {}), other = made_file("new.json", {.time_seed = 5});
  CaseResult slow = made_case("streaming", {.time_seed = 6});
  base.results[0].cases.push_back(made_case("streaming", {}));
  for (Sample& s : slow.timing.samples) s.decode_ms *= 1.25;
  other.results[0].cases.push_back(slow);
  base.results[0].cases.push_back(
      made_case("draft", {.prompts = 2, .rounds = 20, .sampled = true}));
  other.results[0].cases.push_back(
      made_case("draft", {.prompts = 2, .rounds = 20, .token_seed = 8, .sampled = true}));
  base.results[0].cases.push_back(made_case("<a|\"b\">&", {}));
  return compare_made(base, other);
}

TEST(ComparePrint, Golden) {
  const Comparison c = sample_comparison();
  EXPECT_EQ(c.exit_code, ExitCode::kRegression);
  expect_golden(to_table(c, {80, true, false}), "tests/compare/golden/comparison.txt");
  expect_golden(to_markdown(c), "tests/compare/golden/comparison.md");
  expect_golden(to_junit(c), "tests/compare/golden/comparison.xml");
  expect_golden(comparison_schema(), "data/schema/compare.schema.json");
}

TEST(ComparePrint, FitsItsWidthAndEndsWithTheVerdict) {
  const Comparison c = sample_comparison();
  for (const std::size_t width : {80U, 100U, 132U}) {
    const std::string text = to_table(c, {width, true, false});
    std::istringstream lines(text);
    std::string line, last;
    while (std::getline(lines, line)) {
      EXPECT_LE(line.size(), width) << line;
    }
    const std::size_t verdict = text.find("\nREGRESSION: ");
    ASSERT_NE(verdict, std::string::npos);
    EXPECT_EQ(text.find("\n\n", verdict + 1), std::string::npos);
  }
}

TEST(ComparePrint, ColoursChangeNothingElse) {
  const Comparison c = sample_comparison();
  std::string coloured = to_table(c, {80, true, true});
  EXPECT_NE(coloured.find("\x1b[31mstreaming"), std::string::npos);  // what is worse
  EXPECT_NE(coloured.find("\x1b[31mREGRESSION"), std::string::npos);
  for (std::size_t at = coloured.find('\x1b'); at != std::string::npos;
       at = coloured.find('\x1b')) {
    coloured.erase(at, coloured.find('m', at) + 1 - at);
  }
  EXPECT_EQ(coloured, to_table(c, {80, true, false}));
}

}  // namespace
}  // namespace triforce
