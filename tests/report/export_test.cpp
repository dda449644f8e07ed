// What `export` writes for other programs.
#include <gtest/gtest.h>

#include "core/strict_json.h"
#include "report/golden.h"
#include "report/junit.h"
#include "report/sample_result.h"
#include "triforce/foreign.h"

namespace triforce {
namespace {

bool decides(std::string_view param, const CaseResult& c) {
  return param == "temp" || (param == "budget" && c.method == "triforce");
}

// The sample's results have no options of their own but temp.
bool at_default(const Param& param, const CaseResult& /*c*/) {
  return param.first == "temp" || param == Param("budget", std::int64_t{512});
}

std::string exported(std::span<const RunResult> results, ExportFormat format) {
  std::vector<std::string> left_out;
  return export_results(results, {}, format, decides, at_default, left_out);
}

TEST(Export, Golden) {
  const std::vector<RunResult> results = {sample_result()};
  const auto check = [&](ExportFormat format, const char* name) {
    expect_golden(exported(results, format), std::string("tests/report/golden/") + name);
  };
  check(ExportFormat::kBencher, "bencher.json");
  check(ExportFormat::kGithubSmaller, "github_smaller.json");
  check(ExportFormat::kGithubBigger, "github_bigger.json");
  check(ExportFormat::kLatex, "export.tex");
  check(ExportFormat::kMarkdown, "export.md");
  check(ExportFormat::kJunit, "export.xml");
  EXPECT_EQ(exported(results, ExportFormat::kCsv), to_csv(results[0]));
}

TEST(Export, CasesThatFailedAreInItOrSaid) {
  const std::vector<RunResult> results = {sample_result()};
  for (const ExportFormat format :
       {ExportFormat::kBencher, ExportFormat::kGithubSmaller, ExportFormat::kGithubBigger}) {
    std::vector<std::string> left_out;
    const std::string text = export_results(results, {}, format, decides, at_default, left_out);
    EXPECT_EQ(text.find("retrieval"), std::string::npos);
    ASSERT_EQ(left_out.size(), 1U);
    EXPECT_EQ(left_out[0].find("retrieval: left out, its status is oom: out of memory"), 0U);
    EXPECT_TRUE(parse_json(text, "export").is_object() || parse_json(text, "export").is_array());
  }
  for (const ExportFormat format :
       {ExportFormat::kCsv, ExportFormat::kLatex, ExportFormat::kMarkdown, ExportFormat::kJunit}) {
    std::vector<std::string> left_out;
    const std::string text = export_results(results, {}, format, decides, at_default, left_out);
    EXPECT_NE(text.find("retrieval"), std::string::npos);
    EXPECT_NE(text.find("oom"), std::string::npos);
    EXPECT_TRUE(left_out.empty());
  }
}

// Two results: one row of columns for both, and names that tell cases apart by what decides them.
TEST(Export, CasesOfSeveralResultsAreToldApart) {
  std::vector<RunResult> results = {sample_result(), sample_result()};
  for (CaseResult& c : results[1].cases) {
    c.params.emplace_back("budget", std::int64_t{512});
    c.params.emplace_back("json", std::string("x.json"));
  }
  for (CaseResult& c : results[0].cases) c.params.emplace_back("budget", std::int64_t{256});
  const std::string table = exported(results, ExportFormat::kMarkdown);
  for (const char* name : {"| ar |", "| ar#2 |", "| triforce budget=256 |",
                           "| triforce budget=512 |", "| retrieval |", "| retrieval#2 |"}) {
    EXPECT_NE(table.find(name), std::string::npos) << name << "\n" << table;
  }
  // What keeps a history knows each by a name that no other case changes.
  const std::string both = exported(results, ExportFormat::kJunit);
  for (const char* name :
       {"classname=\"triforce\" name=\"triforce budget=256\"",
        "classname=\"triforce\" name=\"triforce\"", "classname=\"ar\" name=\"ar#2\""}) {
    EXPECT_NE(both.find(name), std::string::npos) << name << "\n" << both;
  }
  for (const ExportFormat format :
       {ExportFormat::kBencher, ExportFormat::kGithubSmaller, ExportFormat::kGithubBigger}) {
    const std::string alone = exported({&results[0], 1}, format), among = exported(results, format);
    EXPECT_NE(alone.find("triforce budget=256"), std::string::npos);
    EXPECT_NE(among.find("triforce budget=256"), std::string::npos);
    EXPECT_EQ(exported({&results[1], 1}, format).find("budget"), std::string::npos);
  }
  const std::string csv = to_csv(results);
  EXPECT_EQ(csv.substr(0, csv.find('\n')).find("params.json") != std::string::npos, true);
  const auto columns = [](std::string_view line) {
    return std::count(line.begin(), line.end(), ',');
  };
  const std::string first = to_csv(results[1]);  // the one that has all options
  EXPECT_EQ(columns(csv.substr(0, csv.find('\n'))), columns(first.substr(0, first.find('\n'))));
}

TEST(Export, TablesHaveABaselineOnceThatCasesShare) {
  std::vector<RunResult> results = {sample_result(), sample_result()};
  for (RunResult& r : results) r.cases.resize(2);
  results[1].run_id = "another";
  const std::string each = exported(results, ExportFormat::kMarkdown);
  EXPECT_NE(each.find("| ar#2 "), std::string::npos) << each;
  for (Sample& s : results[1].cases[0].timing.samples) s.generated_in = results[0].run_id;
  for (const ExportFormat format : {ExportFormat::kMarkdown, ExportFormat::kLatex}) {
    const std::string once = exported(results, format);
    EXPECT_EQ(once.find("ar#2"), std::string::npos) << once;
    const std::size_t first = once.find("baseline");
    EXPECT_NE(first, std::string::npos);
    EXPECT_EQ(once.find("baseline", first + 1), std::string::npos);
    EXPECT_EQ(once.find("ar\\#2"), std::string::npos) << once;
  }
}

// Cells of a row, without the blanks around them.
std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  std::istringstream text(row.substr(1));
  for (std::string cell; std::getline(text, cell, '|');) {
    const std::size_t begin = cell.find_first_not_of(' ');
    cells.push_back(begin == std::string::npos
                        ? ""
                        : cell.substr(begin, cell.find_last_not_of(' ') + 1 - begin));
  }
  return cells;
}

// Rows have the columns of the head, whatever the cases have that others have not.
TEST(Export, ATableHasTheColumnsOfAllItsCases) {
  std::vector<RunResult> results = {sample_result()};
  results[0].cases[0].copied.reset();
  ForeignResult other;
  other.name = "Other\x1b";
  other.source = "a | paper";
  other.model = "7B";
  other.setting = {{"budget", std::int64_t{64}}};
  other.speedup = ForeignFigure{1.5, Interval{1.25, 1.75}};
  other.acceptance_rate = ForeignFigure{0.8125, {}};
  std::vector<std::string> left_out;
  const std::string table =
      export_results(results, {&other, 1}, ExportFormat::kMarkdown, decides, at_default, left_out);
  EXPECT_TRUE(left_out.empty());
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> head = cells_of(line);
  EXPECT_EQ(head.back(), "source");
  const auto column = [&](const char* name) {
    const auto at = std::find(head.begin(), head.end(), name) - head.begin();
    EXPECT_LT(at, std::ssize(head)) << name;
    return static_cast<std::size_t>(at);
  };
  std::vector<std::vector<std::string>> rows;
  while (std::getline(lines, line)) rows.push_back(cells_of(line));
  ASSERT_EQ(rows.size(), 5U);
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) EXPECT_EQ(rows[i].size(), head.size()) << i;
  EXPECT_EQ(rows[1][column("copied")], "-");
  EXPECT_EQ(rows[1][column("lossless")], "baseline");
  EXPECT_NE(rows[2][column("copied")], "-");
  EXPECT_EQ(rows[4][column("method")], "Other? budget=64 (foreign)");
  EXPECT_EQ(rows[4][column("speedup")], "1.50x");
  EXPECT_EQ(rows[4][column("x 95% CI")], "1.25-1.75");
  EXPECT_EQ(rows[4][column("ms/token")], "-");
  EXPECT_EQ(rows[4][column("accepted")], fmt::format("{:.3f}", 0.8125));
  EXPECT_NE(table.find("a \\| paper; 7B"), std::string::npos);
}

TEST(Foreign, SaysWhatItIs) {
  const std::string others = "{\"results\": [], \"schema\": \"triforce-bench.foreign/1\"}";
  EXPECT_TRUE(says_foreign(others));
  EXPECT_TRUE(read_foreign_results(others, "f.json").empty());
  EXPECT_FALSE(says_foreign("{}"));
  RunResult ours = sample_result();
  ours.cases[0].name = "\"triforce-bench.foreign/1\"";
  EXPECT_FALSE(says_foreign(to_json(ours)));
  EXPECT_FALSE(says_foreign(to_jsonl(ours)));
}

TEST(Junit, EscapesAndCounts) {
  using Outcome = JunitCase::Outcome;
  const std::string xml = to_junit("s", {{"g", "<a & \"b\">\x01", Outcome::kPassed, "", 1.5},
                                         {"g", "b", Outcome::kFailed, "x < y", 0},
                                         {"g", "c", Outcome::kError, "", 0},
                                         {"g", "d", Outcome::kSkipped, "", 0}});
  EXPECT_NE(xml.find("name=\"&lt;a &amp; &quot;b&quot;&gt;?\" time=\"1.500\"/>"),
            std::string::npos);
  EXPECT_NE(xml.find("<testsuites tests=\"4\" failures=\"1\" errors=\"1\">"), std::string::npos);
  EXPECT_NE(xml.find("tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\">"), std::string::npos);
  EXPECT_NE(xml.find("<failure message=\"x &lt; y\"/>"), std::string::npos);
}

// ---- Reading files back

TEST(ResultFile, TellsItsFormatsApart) {
  const RunResult sample = sample_result();
  const auto write = [](const std::string& text) {
    auto file = std::filesystem::path(::testing::TempDir()) / "triforce_export.any";
    std::ofstream(file, std::ios::binary) << text;
    return file;
  };
  std::string compact = to_json(sample);
  for (const std::string& text : {to_json(sample), to_jsonl(sample)}) {
    const ResultFile file = read_result_file(write(text));
    ASSERT_EQ(file.results.size(), 1U);
    EXPECT_EQ(file.results[0].cases.size(), sample.cases.size());
    EXPECT_EQ(to_json(file.results[0]), to_json(sample));
  }
  // A document on one line is one too.
  std::erase(compact, '\n');
  EXPECT_EQ(read_result_file(write(compact)).results[0].cases.size(), sample.cases.size());
  RunResult empty = sample;
  empty.cases.clear();
  for (const std::string& text : {std::string(), std::string("\n"), std::string("{}"),
                                  std::string("[]"), to_json(empty), std::string("hello\n")}) {
    EXPECT_THROW(read_result_file(write(text)), Error) << text;
  }
  EXPECT_THROW(read_result_file("not/there"), Error);
}

}  // namespace
}  // namespace triforce
