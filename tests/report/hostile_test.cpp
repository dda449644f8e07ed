// Names and texts that would do something where they are shown: on a terminal, in Markdown, in a
// LaTeX document, in JUnit XML, in a spreadsheet.
#include <gtest/gtest.h>

#include <sstream>

#include "report/junit.h"
#include "report/printers.h"
#include "report/tables.h"
#include "sample_result.h"
#include "triforce/foreign.h"
#include "triforce/sweep.h"

namespace triforce {
namespace {

// Each drives a terminal or changes the order of the text beside it.
const std::vector<std::string> kDrivers = {
    "\x1b",    // ESC
    "\x07",    // BEL
    "\x7f",    // DEL
    "\r",      //
    "\u0080",  // C1, first
    "\u009b",  // C1, the other CSI
    "\u009f",  // C1, last
    "\u2028",
    "\u2029"   // separators
    "\u202a",  // bidi, first and last of both groups
    "\u202e",
    "\u2066",
    "\u2069",
};
// What is shown as it is beside these: the neighbours of each range.
const std::string kHarmless = "\u00a0\u00e4\u2027\u202f\u2065\u206a\U0001F600";

std::string all_drivers() {
  std::string all = "x";
  for (const std::string& driver : kDrivers) all += driver + "y";
  return all;
}

void expect_tame(const std::string& text) {
  EXPECT_TRUE(is_valid_utf8(text));
  for (const std::string& driver : kDrivers) {
    EXPECT_EQ(text.find(driver), std::string::npos) << quote_text(driver);
  }
}

TEST(Printable, IsWhatATerminalMayBeGiven) {
  for (const std::string& driver : kDrivers) {
    EXPECT_EQ(printable("a" + driver.substr(0, utf8_character_length(driver)) + "b"), "a?b")
        << quote_text(driver);
  }
  EXPECT_EQ(printable(kHarmless), kHarmless);
  EXPECT_EQ(printable("a\nb\tc"), "a?b?c");
  EXPECT_EQ(printable("a\nb\tc\x1b", "\n\t"), "a\nb\tc?");
  EXPECT_EQ(printable("a\xff\xc2"), "a\uFFFD\uFFFD");
  EXPECT_EQ(quote_text("a\u202e\u009b\u00e4"), "\"a\\xe2\\x80\\xae\\xc2\\x9b\u00e4\"");
}

SweepResult hostile_sweep(const std::string& name) {
  SweepResult sweep;
  SweepRow& row = sweep.rows.emplace_back();
  row.number = 1;
  row.recipe = "recipe";
  row.options = {{"dataset", name}};
  row.result = sample_result();
  row.result.cases[0].target->name = name;
  row.result.cases[2].status_reason = name;
  row.result.context.cpu_model = name;
  SweepRecipe& recipe = sweep.recipes.emplace_back();
  recipe.name = "recipe";
  recipe.title = recipe.source = recipe.about = name;
  recipe.cannot = {name};
  return sweep;
}

TEST(Hostile, NothingDrivesTheTerminal) {
  const SweepResult sweep = hostile_sweep(all_drivers());
  for (const bool details : {false, true}) {
    expect_tame(to_table(sweep, {80, details, false}));
    expect_tame(to_markdown(sweep, details));
  }
  const RunResult& r = sweep.rows[0].result;
  expect_tame(to_table(r));
  expect_tame(to_markdown(r));
  expect_tame(to_junit(all_drivers(), {{all_drivers(), all_drivers(), {}, all_drivers(), 0}}));
}

std::string exported(const std::string& name, ExportFormat format) {
  RunResult r = sample_result();
  for (CaseResult& c : r.cases) c.name = name;
  ForeignResult f;
  f.name = f.source = name;
  f.machine = f.model = name;
  f.setting = {{"budget", name}};
  const auto none = [](std::string_view /*param*/, const CaseResult& /*c*/) { return false; };
  const auto is_default = [](const Param& /*param*/, const CaseResult& /*c*/) { return true; };
  std::vector<std::string> left_out;
  return export_results({&r, 1}, {&f, 1}, format, none, is_default, left_out);
}

TEST(Hostile, NothingThatIsExportedDrivesTheTerminal) {
  for (const ExportFormat format : {ExportFormat::kLatex, ExportFormat::kMarkdown,
                                    ExportFormat::kJunit, ExportFormat::kBencher}) {
    expect_tame(exported(all_drivers(), format));
  }
  RunResult r = sample_result();
  r.cases[0].name = all_drivers() + std::string(1, '\0');
  std::string csv = to_csv(r);
  EXPECT_EQ(csv.find('\0'), std::string::npos);
  std::erase(csv, '\r');  // which may stand between quotes
  expect_tame(csv);
}

TEST(Hostile, MarkdownHasNoMarkupOfOthers) {
  const std::vector<std::string> kTexts = {"<script>alert(1)</script>",
                                           "<img src=x onerror=alert(1)>",
                                           "[l](javascript:alert(1))",
                                           "![p](http://x)",
                                           "[l][r]",
                                           "[r]: javascript:alert(1)",
                                           "a | b",
                                           "a\n| b |\n\n# head",
                                           "\\[l\\](x)",
                                           "&lt;b&gt;"};
  for (const std::string& text : kTexts) {
    SCOPED_TRACE(text);
    const SweepResult sweep = hostile_sweep(text);
    for (const std::string& shown :
         {to_markdown(sweep, true), to_markdown(sweep, false),
          to_markdown(sweep.rows[0].result, true), exported(text, ExportFormat::kMarkdown)}) {
      for (const char* markup : {"<script", "<img", "](", "][", "]: ", "\n# head", "&lt;b&gt;"}) {
        std::size_t at = shown.find(markup);
        // An escaped backslash before a bracket would leave it a bracket.
        while (at != shown.npos && markup[0] == ']' && at > 0 && shown[at - 1] == '\\' &&
               (at < 2 || shown[at - 2] != '\\' || (at > 2 && shown[at - 3] == '\\'))) {
          at = shown.find(markup, at + 1);
        }
        EXPECT_EQ(at, std::string::npos) << markup << " in " << shown.substr(at, 80);
      }
    }
  }
  EXPECT_EQ(markdown_text("a<b>&|\\[1] [l](x) [l][r]"),
            "a&lt;b&gt;&amp;\\|\\\\[1] [l\\](x) [l\\][r]");
}

TEST(Hostile, LatexCellsAreNoArguments) {
  for (const std::string name : {"[3cm] x", "*[1pt] x"}) {
    const std::string latex = exported(name, ExportFormat::kLatex);
    std::istringstream lines(latex);
    int cells = 0;
    for (std::string line; std::getline(lines, line);) {
      const std::size_t first = line.find_first_not_of(' ');
      ASSERT_TRUE(first == line.npos || (line[first] != '[' && line[first] != '*')) << line;
      cells += line.find("{}" + name) == first ? 1 : 0;
    }
    EXPECT_EQ(cells, 4) << latex;
  }
}

TEST(Hostile, CsvHasNoFormulas) {
  const auto cell_of = [](const std::string& name) {
    RunResult r = sample_result();
    r.cases.resize(1);
    r.cases[0].name = name;
    const std::string csv = to_csv(r);
    const std::string header = csv.substr(0, csv.find('\n'));
    const std::size_t columns =
        std::size_t(std::count(header.begin(),
                               header.begin() + std::ptrdiff_t(header.find(",name,")), ',')) +
        1;
    // No cell before it holds a comma.
    r.context.argv.clear();
    r.context.backend = "cpu";
    std::istringstream cells(to_csv(r).substr(header.size() + 1));
    std::string cell;
    for (std::size_t i = 0; i <= columns; ++i) std::getline(cells, cell, ',');
    return cell;
  };
  EXPECT_EQ(cell_of("plain"), "plain");
  for (const char* formula : {"=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)", "\tx"}) {
    EXPECT_EQ(cell_of(formula), std::string("'") + formula);
  }
  EXPECT_EQ(cell_of("=1\n2"), "\"'=1\n2\"");
  EXPECT_EQ(cell_of("-2.5"), "-2.5");  // a number
  EXPECT_EQ(cell_of("a\xff"
                    "b"),
            "a\uFFFD"
            "b");
}

}  // namespace
}  // namespace triforce
