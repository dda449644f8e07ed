#include "report/printers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "report/golden.h"
#include "report/sample_result.h"
#include "triforce/sweep.h"

namespace triforce {
namespace {

TEST(Golden, Table) { expect_golden(to_table(sample_result()), "tests/report/golden/result.txt"); }
TEST(Golden, Screen) {
  expect_golden(to_table(sample_result(), {80, false}), "tests/report/golden/screen.txt");
}
TEST(Golden, Markdown) {
  expect_golden(to_markdown(sample_result()), "tests/report/golden/result.md");
}
TEST(Golden, Csv) { expect_golden(to_csv(sample_result()), "tests/report/golden/result.csv"); }
TEST(Golden, Json) { expect_golden(to_json(sample_result()), "tests/report/golden/result.json"); }
// What no case is stands in a table of its own, so that no figure of ours is in its row or above
// it.
TEST(Sweep, WhatCannotRunIsInNoTableWithCases) {
  SweepResult sweep;
  SweepRecipe& recipe = sweep.recipes.emplace_back();
  recipe.name = "tiny-table4";
  recipe.title = "Table 4";
  recipe.source = "the paper";
  recipe.published = {PublishedPoint(), PublishedPoint()};
  PublishedPoint& row = recipe.published[0];
  row.method = "draft";
  row.setting = "temp 0";
  row.source = "Table 4, a row";
  row.speedup = 1.5;
  row.alpha = .25;
  PublishedPoint& other = recipe.published[1];
  other.method = "REST";
  other.setting = "PG-19";
  other.source = "Table 4, another";
  other.speedup = 1.25;
  other.tokens_per_round = 3.5;
  other.needs = "a datastore";
  sweep.rows.push_back({{1, "tiny-table4"}, {}, sample_result()});
  const std::string text = to_table(sweep, {100, false});
  const std::size_t ours = text.find("tiny-table4: Table 4");
  const std::size_t published = text.find("Published: the paper");
  const std::size_t elsewhere = text.find("Published, of what cannot run here: the paper");
  ASSERT_LT(ours, published);
  ASSERT_LT(published, elsewhere);
  ASSERT_NE(elsewhere, std::string::npos);
  EXPECT_LT(text.find("Table 4, a row"), elsewhere);
  for (const char* cell : {"REST", "1.25x", "3.50", "a datastore"}) {
    EXPECT_GT(text.find(cell), elsewhere) << cell;
    EXPECT_NE(text.find(cell), std::string::npos) << cell;
  }
  // Sources and caveats stand below both tables, whole, however narrow the screen is.
  const std::string narrow = to_table(sweep, {60, false});
  for (const char* note : {"[1] Table 4, a row", "[1] Table 4, another"}) {
    EXPECT_NE(text.find(note), std::string::npos) << note;
    EXPECT_NE(narrow.find(note), std::string::npos) << note;
  }
  // Without such rows there is no such table, and the other way round.
  recipe.published.pop_back();
  EXPECT_EQ(to_table(sweep, {100, false}).find("of what cannot run here"), std::string::npos);
  EXPECT_EQ(to_json(read_json_sweep(to_json(sweep), "sweep")), to_json(sweep));
}

TEST(Notes, AreThereOnceAndNumbered) {
  TextTable table;
  table.head = {"what", "note"};
  for (const char* note : {"Table 1 (greedy)", "Table 1 (raw .9129)", "Table 1 (greedy)"}) {
    table.rows.push_back({"x", cite(note, table)});
  }
  EXPECT_EQ(table.rows[0][1], "[1]");
  EXPECT_EQ(table.rows[1][1], "[2]");
  EXPECT_EQ(table.rows[2][1], "[1]");
  ReportText report;
  report.tables = {table};
  const std::string text = render_report(report, {20, false});
  EXPECT_NE(text.find("\n[1] Table 1 (greedy)\n[2] Table 1 (raw\n    .9129)\n"), std::string::npos)
      << text;
  const std::string markdown = render_markdown(report);
  EXPECT_NE(markdown.find("\n\n- [1] Table 1 (greedy)\n- [2] Table 1 (raw .9129)\n"),
            std::string::npos)
      << markdown;
}

// ---- A sweep: two cases that were measured, the second with another result, and one refused.
SweepResult sample_sweep() {
  SweepResult sweep;
  for (std::int64_t i = 0; i < 3; ++i) {
    sweep.rows.push_back({{i + 1, std::nullopt},
                          {{"budget", 512 << i}, {"selection", std::string("mean-key")}},
                          sample_result()});
  }
  sweep.rows[1].result.cases[1].speedup->value = 2.5;
  RunResult& refused = sweep.rows[2].result;
  refused.cases.resize(1);
  refused.cases[0].status = CaseStatus::kSkippedOptions;
  refused.cases[0].status_reason = "--budget: expected another";
  refused.cases[0].timing = {};
  return sweep;
}
TEST(Golden, SweepTable) {
  expect_golden(to_table(sample_sweep(), {100, false}), "tests/report/golden/sweep.txt");
}
TEST(Golden, SweepMarkdown) {
  expect_golden(to_markdown(sample_sweep(), false), "tests/report/golden/sweep.md");
}
TEST(Golden, SweepJson) {
  expect_golden(to_json(sample_sweep()), "tests/report/golden/sweep.json");
}
// The same as cases of a recipe with columns of its own and things to be shown.
SweepResult sample_recipe() {
  SweepResult sweep = sample_sweep();
  SweepRecipe& recipe = sweep.recipes.emplace_back();
  recipe.name = "tiny-fig9";
  recipe.title = "Figure 9: budgets";
  recipe.source = "a paper, figure 9";
  recipe.about = "acceptance rises";
  recipe.published = {PublishedPoint()};
  PublishedPoint& point = recipe.published.front();
  point.method = "triforce";
  point.setting = "budget 512";
  point.source = "Figure 9; a100-80g";
  point.pass = "draft";
  point.pass_ms = 0.45;
  recipe.columns = {CaseMetric::kSpeedup, CaseMetric::kAcceptance, CaseMetric::kAlpha,
                    CaseMetric::kBound,   ms_of(Pass::kRetrieval), CaseMetric::kLength};
  recipe.equal = EqualView{"budget", CaseMetric::kSpeedup};
  for (SweepRow& row : sweep.rows) row.recipe = recipe.name;
  SweepDirection d;
  d.text = "acceptance rises with the budget";
  d.side = {2, "triforce", "budget 1024", 0.875};
  d.than = {1, "triforce", "budget 512", 0.8};
  d.effect = 0.075;
  d.ci95_low = 0.025;
  d.ci95_high = 0.125;
  d.ci95_over = IntervalOver::kPrompts;
  d.verdict = DirectionVerdict::kHolds;
  recipe.directions.push_back(d);
  d.text = "at least nine tenths of the speedup";
  d.metric = CaseMetric::kSpeedup;
  d.side.value = 2.5;
  d.than.value = 2.0;
  d.threshold = 0.9;
  d.effect = 1.25;
  d.ci95_low = 0.75;
  d.ci95_high = 1.75;
  d.verdict = DirectionVerdict::kUndecided;
  d.reason = "the interval holds 0.9";
  recipe.directions.push_back(d);
  d = {};
  d.text = "a pass takes no longer";
  d.metric = ms_of(Pass::kDraft);
  d.relation = DirectionRelation::kLess;
  d.side = {3, "triforce", "budget 2048", {}};
  d.than = {1, "triforce", "budget 512", 0.125};
  d.threshold = 1;
  d.reason = "case 3, triforce: it was not measured";
  recipe.directions.push_back(d);
  return sweep;
}
TEST(Golden, RecipeTable) {
  expect_golden(to_table(sample_recipe(), {100, false}), "tests/report/golden/recipe.txt");
}
TEST(Golden, RecipeMarkdown) {
  expect_golden(to_markdown(sample_recipe(), false), "tests/report/golden/recipe.md");
}
TEST(Sweep, RecipesAreReadBack) {
  const SweepResult sweep = sample_recipe();
  const std::string text = to_json(sweep);
  EXPECT_EQ(to_json(read_json_sweep(text, "sweep")), text);
  for (const auto& [from, to] : {std::pair{"\"holds\"", "\"hopes\""}, {"\"bound\"", "\"bond\""}}) {
    std::string wrong = text;
    wrong.replace(wrong.find(from), std::string_view(from).size(), to);
    EXPECT_THROW(read_json_sweep(wrong, "sweep"), Error) << from;
  }
}
// Without a baseline there is no speedup, nor its interval, which a narrow terminal would drop.
TEST(Sweep, FitsWithoutABaseline) {
  SweepResult sweep = sample_sweep();
  for (SweepRow& row : sweep.rows) {
    std::erase_if(row.result.cases, [](const CaseResult& c) { return c.method == "ar"; });
    for (CaseResult& c : row.result.cases) c.speedup.reset();
    row.options.emplace_back("a_rather_long_option", std::string("with a long value"));
  }
  const std::string text = to_table(sweep, {80, false});
  EXPECT_EQ(text.find("x 95% CI"), std::string::npos);
  EXPECT_EQ(text.find("ms 95% CI"), std::string::npos);
}

TEST(Metrics, OfACase) {
  const CaseResult c = sample_triforce();
  EXPECT_EQ(metric_of(c, CaseMetric::kMsPerToken), 2.0);
  EXPECT_EQ(metric_of(c, CaseMetric::kSpeedup), 2.0);
  EXPECT_EQ(metric_of(c, ms_of(Pass::kDraft)), 0.1);
  EXPECT_EQ(metric_of(c, ms_of(Pass::kRetrieval)), 1.5);
  EXPECT_EQ(metric_of(c, ms_of(Pass::kFull)), 4.0);
  EXPECT_EQ(metric_of(c, CaseMetric::kInnerAcceptance), 0.5);
  const double alpha = c.acceptance[1].alpha();
  EXPECT_EQ(metric_of(c, CaseMetric::kAlpha), alpha);
  EXPECT_EQ(metric_of(c, CaseMetric::kBound), 1 / (1 - alpha));
  EXPECT_EQ(metric_of(c, CaseMetric::kAcceptance), 8.0 / 9);
  EXPECT_EQ(metric_of(c, CaseMetric::kLength), 5.0);
  EXPECT_EQ(metric_of(c, CaseMetric::kRecovery), 0.5);
  EXPECT_EQ(metric_of(c, CaseMetric::kCopied), c.copied->tokens());
  EXPECT_EQ(metric_of(c, CaseMetric::kAnswered), 0.75);
  EXPECT_EQ(metric_of(c, CaseMetric::kJoules), 0.75);
  EXPECT_EQ(metric_of(c, CaseMetric::kSaving), 2.0);
  EXPECT_EQ(metric_of(c, CaseMetric::kCost), 2.0);
  EXPECT_EQ(metric_of(c, CaseMetric::kOfBound), 0.875);
  // The paper's asymptotes (figure 5) from the acceptances of its table 2.
  EXPECT_NEAR(speedup_bound(0.9234), 13.05, 0.01);
  EXPECT_NEAR(speedup_bound(0.4649), 1.87, 0.01);
  for (std::size_t i = 0; i < names_of(CaseMetric{}).size(); ++i) {
    const auto metric = static_cast<CaseMetric>(i);
    EXPECT_FALSE(meaning_of(metric).empty());
    if (metric == CaseMetric::kMsPerToken || metric == ms_of(Pass::kFull) ||
        metric == CaseMetric::kCopied || metric == CaseMetric::kAnswered ||
        metric == CaseMetric::kJoules || metric == CaseMetric::kCost ||
        metric == CaseMetric::kOfBound) {
      continue;
    }
    EXPECT_FALSE(metric_of(sample_baseline(), metric).has_value()) << to_string(metric);
  }
  CaseResult all = c;  // everything accepted: no bound
  LevelCounters sure = sample_level("outer", {6, 6});
  static_cast<LevelCounters&>(all.acceptance[1]) = sure;
  EXPECT_FALSE(metric_of(all, CaseMetric::kBound).has_value());
}

TEST(Sweep, FilesAreThoseOfTheCases) {
  const SweepResult sweep = sample_sweep();
  EXPECT_EQ(to_json(read_json_sweep(to_json(sweep), "sweep")), to_json(sweep));
  std::string lines;
  for (const SweepRow& row : sweep.rows) lines += to_jsonl(result_of(row));
  EXPECT_EQ(to_jsonl(sweep), lines);
  const std::string csv = to_csv(sweep), one = to_csv(result_of(sweep.rows[0]));
  const auto rows_of = [](const std::string& text) { return text.substr(text.find('\n')); };
  EXPECT_EQ(csv, one + rows_of(to_csv(result_of(sweep.rows[1]))).substr(1) +
                     rows_of(to_csv(result_of(sweep.rows[2]))).substr(1));
}

// The cells of these columns of a CSV text, a list a line; none is quoted before them.
std::vector<std::vector<std::string>> cells_of(const std::string& csv,
                                               const std::vector<std::string>& columns) {
  const auto split = [](const std::string& line) {
    std::vector<std::string> cells;
    bool quoted = false;
    cells.emplace_back();
    for (const char c : line) {
      if (c == '"') quoted = !quoted;
      c == ',' && !quoted ? void(cells.emplace_back()) : cells.back().push_back(c);
    }
    return cells;
  };
  std::istringstream in(csv);
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> head = split(line);
  std::vector<std::vector<std::string>> out;
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = split(line);
    out.emplace_back();
    for (const std::string& name : columns) {
      const auto at = std::find(head.begin(), head.end(), name);
      out.back().push_back(
          at == head.end() ? "no " + name : cells.at(static_cast<std::size_t>(at - head.begin())));
    }
  }
  return out;
}

// Each line says whose it is, and cases of one run_id stay apart.
TEST(Sweep, LinesSayTheirCaseAndRecipe) {
  SweepResult sweep = sample_sweep();
  for (SweepRow& row : sweep.rows) {  // of one line a method, without line breaks in cells
    row.result.cases.resize(1);
    row.result.cases[0].status_reason.reset();
  }
  sweep.rows[0].recipe = "tiny-a,b";
  sweep.rows[1].recipe = "tiny-c";
  const std::vector<std::string> columns = {"sweep.case", "sweep.recipe"};
  using Cells = std::vector<std::vector<std::string>>;
  EXPECT_EQ(cells_of(to_csv(sweep), columns),
            (Cells{{"1", "\"tiny-a,b\""}, {"2", "tiny-c"}, {"3", ""}}));
  EXPECT_EQ(cells_of(to_csv(sweep.rows[0].result), columns), (Cells{{"", ""}}));

  const std::vector<RunResult> results = read_jsonl_results(to_jsonl(sweep), "sweep.jsonl");
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0].run_id, results[1].run_id);
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].sweep, static_cast<const SweepPlace&>(sweep.rows[i])) << i;
    EXPECT_EQ(to_json(results[i]), to_json(sweep.rows[i].result)) << i;
  }
  EXPECT_EQ(to_csv(results), to_csv(sweep));
  EXPECT_NE(to_jsonl(sweep.rows[0].result).find(R"("sweep":null,)"), std::string::npos);
}
// With details, the tables of each case come before the common one.
TEST(Sweep, Details) {
  const SweepResult sweep = sample_sweep();
  const std::string all = to_table(sweep, {100, true}), common = to_table(sweep, {100, false});
  EXPECT_NE(all.find("Case 2 (budget 1024, selection mean-key)"), std::string::npos);
  EXPECT_NE(all.find(to_table(sweep.rows[0].result, {100, true})), std::string::npos);
  EXPECT_TRUE(all.ends_with(common));
}

// What only some cases have is a column of all.
TEST(Sweep, ColumnsThatNotAllCasesHave) {
  SweepResult sweep = sample_sweep();
  for (CaseResult& c : sweep.rows[0].result.cases) {
    c.recovery.reset();
    c.copied.reset();
    c.answered.reset();
  }
  sweep.rows[1].result.cases[1].lossless.equal_tokens = 0.25;
  std::istringstream in(to_table(sweep, {120, false}));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.find("triforce") != std::string::npos && line.find("mean-key") != std::string::npos) {
      lines.push_back(line);
    }
    if (line.find("recovery") != std::string::npos && lines.empty()) lines.push_back(line);
  }
  ASSERT_EQ(lines.size(), 3U);
  const auto cell = [&](std::size_t row, const std::string& column) {
    const std::size_t end = lines[0].find(column) + column.size();
    const std::size_t begin = lines[row].find_last_of(' ', end - 1) + 1;
    return lines[row].substr(begin, end - begin);
  };
  EXPECT_EQ(cell(1, "recovery"), "-");
  EXPECT_EQ(cell(2, "recovery"), "0.500");
  EXPECT_EQ(cell(1, "as ar"), "-");
  EXPECT_EQ(cell(2, "as ar"), "0.250");
  EXPECT_EQ(cell(1, "lossless"), "DIFFERENT");
  EXPECT_EQ(cell(2, "lossless"), "DIFFERENT");
}

TEST(Golden, Jsonl) {
  expect_golden(to_jsonl(sample_result()), "tests/report/golden/result.jsonl");
}

std::size_t max_line_width(const std::string& text) {
  std::istringstream in(text);
  std::size_t max_width = 0;
  for (std::string line; std::getline(in, line);) max_width = std::max(max_width, line.size());
  return max_width;
}

// Without the line ends of a caption.
std::string table_words(const RunResult& r) {
  std::istringstream in(to_table(r));
  std::string out;
  for (std::string word; in >> word;) out += word + ' ';
  return out;
}

TEST(Table, LongListsAreCut) {
  EXPECT_EQ(cell_text(std::string("[-1, -1, 0]")), "[-1, -1, 0]");
  EXPECT_EQ(cell_text(std::string(60, 'x')), std::string(60, 'x'));  // a name
  std::string tree = "[-1";
  for (int i = 0; i < 19; ++i) tree += ", -1";
  EXPECT_EQ(cell_text(tree + "]"), "[-1, -1, -1, -1, -1, -1,... 20 in all]");
}

TEST(Table, FitsAHundredColumns) {
  EXPECT_LE(max_line_width(to_table(sample_result())), 100U);
  // The widest a run gets: five digits everywhere, long names, gammas of two digits.
  RunResult r = sample_result();
  r.context.cpu_model = std::string(90, 'c');
  r.cases.resize(2);
  for (CaseResult& c : r.cases) {
    c.name = "streaming";
    c.target->name = std::string(300, 'n');
    Distribution& d = c.timing.ms_per_token;
    d.geometric_mean = 12345.6;
    d.ci95_low = 12345.6;
    d.ci95_high = 99999.4;
    c.timing.tokens_per_s = 99999;
    c.timing.noise_pct = 100.25;
    c.speedup = Speedup{"ar", 12.5, 11.25, 13.75, IntervalOver::kRepetitions,
                        14.0, 12.5, 11.25, 13.75, std::int64_t{1} << 40};
    c.timing.preparation_ms = c.timing.end_to_end_ms = 99999.4;
    c.lossless = {LosslessMode::kTokens, true, true, 12345, {}, {}, {}};
    c.gammas = CaseGammas{31, 31, true};
    for (LevelResult& level : c.acceptance) {
      level.ci95 = sample_intervals();
      level.ci95->mean_accepted_length = {20.25, 30.75};
      for (PositionIntervals* p :
           {&level.ci95->rate_per_position, &level.ci95->unconditional_rate_per_position}) {
        p->low.assign(62, 0.25);
        p->high.assign(62, 0.75);
      }
      level.rounds = 1'234'567;
      level.tested_at.assign(62, 100);
      level.accepted_at.assign(62, 50);
    }
    for (double& ms : *c.phases_ms_per_round) ms = std::isnan(ms) ? ms : 12345.6;
    for (PassTraffic& t : c.traffic) t.bytes_per_pass = 99'990'000'000;
    c.validity.reasons.push_back(std::string(250, 'r'));
  }
  const std::string text = to_table(r);
  EXPECT_LE(max_line_width(text), 100U) << text;
}

TEST(Table, FitsTheWidthItIsGiven) {
  RunResult r = sample_result();
  for (CaseResult& c : r.cases) {
    c.name = "streaming-hierarchy";
    c.timing.ms_per_token.ci95_low = 12345.6;
    c.timing.ms_per_token.ci95_high = 99999.4;
    c.lossless.mode = LosslessMode::kDistribution;
    c.answered.reset();  // of prompts with pass keys none
  }
  EXPECT_LE(max_line_width(to_table(r, {80, false})), 80U);
  for (CaseResult& c : r.cases) c.batch.reset();
  const std::string narrow = to_table(r, {80, false}), wide = to_table(r, {120, false});
  EXPECT_LE(max_line_width(narrow), 80U) << narrow;
  EXPECT_LE(max_line_width(wide), 120U) << wide;
  EXPECT_GT(max_line_width(wide), 80U);
  EXPECT_EQ(narrow.find("ms 95% CI"), std::string::npos);
  EXPECT_NE(wide.find("ms 95% CI"), std::string::npos);
  EXPECT_EQ(narrow.find("Memory"), std::string::npos);
}

TEST(Table, ColoursWarningsAndTheHeadlineOnly) {
  const std::string plain = to_table(sample_result()),
                    coloured = to_table(sample_result(), {.colour = true});
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  std::string without = coloured;
  for (const std::string code : {"\x1b[33m", "\x1b[1m", "\x1b[0m"}) {
    EXPECT_NE(without.find(code), std::string::npos);
    for (std::size_t at = 0; (at = without.find(code)) != std::string::npos;) {
      without.erase(at, code.size());
    }
  }
  EXPECT_EQ(without, plain);
}

TEST(Headline, SaysInWordsWhatCameOut) {
  RunResult r = sample_result();
  r.cases[1].validity = {};
  CaseResult& c = r.cases[1];
  c.lossless.equal_to_baseline = true;
  EXPECT_EQ(headline(r),
            "TriForce is 2.00x faster than autoregressive decoding (95% CI 1.88-2.12): 2.000 "
            "against 4.000 ms/token, output identical.");
  c.lossless.mode = LosslessMode::kDistribution;
  c.speedup->ci95_over = IntervalOver::kRepetitions;
  EXPECT_EQ(headline(r),
            "TriForce is 2.00x faster than autoregressive decoding (95% CI 1.88-2.12, of one "
            "prompt): 2.000 against 4.000 ms/token, output of the same distribution.");
  *c.speedup = {"ar", 0.5, 0.4, 0.8, IntervalOver::kPrompts, {}, {}, {}, {}, {}};
  EXPECT_NE(headline(r).find("is 2.00x slower than autoregressive decoding (95% CI 1.25-2.50)"),
            std::string::npos)
      << headline(r);
  c.speedup->ci95_high = 1.1;
  EXPECT_NE(headline(r).find("TriForce shows no significant difference from autoregressive "
                             "decoding: 0.50x (95% CI 0.40-1.10): 2.000 against 4.000"),
            std::string::npos)
      << headline(r);
  c.speedup->ci95_low = c.speedup->ci95_high = std::nullopt;
  c.speedup->ci95_over = std::nullopt;
  EXPECT_NE(headline(r).find("is 0.50x as fast as autoregressive decoding (no interval): 2"),
            std::string::npos)
      << headline(r);
  c.lossless.exact_rule = false;
  EXPECT_NE(headline(r).find("not lossless"), std::string::npos);
  c.lossless = {};
  c.lossless.mode = LosslessMode::kLossy;
  EXPECT_NE(headline(r).find("ms/token, NOT lossless: nothing verifies."), std::string::npos);
  c.lossless.exact_rule = false;
  c.speedup.reset();
  EXPECT_NE(headline(r).find("TriForce: 2.000 ms/token, 500.0 tokens/s"), std::string::npos);
  c.validity.comparable = false;
  EXPECT_TRUE(headline(r).ends_with(" Not comparable with other runs: see above."));
  // A lossless method is what a run is about, whichever comes first.
  RunResult two = sample_result();
  two.cases[2] = two.cases[1];
  two.cases[1].name = two.cases[1].method = "lossy-streaming";
  two.cases[1].chain = {"streaming"};
  two.cases[1].lossless.mode = LosslessMode::kLossy;
  two.cases[2].name = two.cases[2].method = "streaming";
  two.cases[2].chain = {"streaming", "full"};
  EXPECT_TRUE(headline(two).starts_with("streaming is"));
  two.cases.resize(2);
  EXPECT_TRUE(headline(two).starts_with("lossy-streaming is"));
  r.cases.resize(1);
  EXPECT_EQ(headline(r), "Autoregressive decoding: 4.000 ms/token, 250.0 tokens/s.");
  r.cases.clear();
  EXPECT_EQ(headline(r), "");
}

TEST(Table, WarnsOfExperimentsThatCannotShowWhatTheyAskFor) {
  RunResult r = sample_result();
  CaseResult& c = r.cases[1];
  const auto has = [&](const char* words) {
    return table_words(r).find(words) != std::string::npos;
  };
  const auto set = [&](const char* name, std::int64_t value) {
    const auto it = std::find_if(c.params.begin(), c.params.end(),
                                 [&](const Param& p) { return p.first == name; });
    if (it == c.params.end()) {
      c.params.emplace_back(name, value);
    } else {
      it->second = value;
    }
  };
  set("prefill", 1024);
  set("budget", 1023);
  EXPECT_TRUE(has("--budget 1024 holds the whole prompt"));  // what auto chose counts
  c.tuning.reset();
  EXPECT_FALSE(has("holds the whole prompt"));
  set("budget", 1024);
  EXPECT_TRUE(has("! triforce: --budget 1024 holds the whole prompt of 1024 tokens"));
  c.acceptance.back().rounds = 19;
  EXPECT_TRUE(has("! triforce: 19 verifications in all: too few"));
  c.acceptance.back().rounds = 20;
  EXPECT_FALSE(has("too few"));
}

// What auto chose, in words: whatever came of it.
TEST(Tuning, IsSaidInTwoSentences) {
  CaseResult c = sample_result().cases[1];
  CaseTuning& t = *c.tuning;
  const auto says = [&](const char* words) {
    return tuning_text(c).find(words) != std::string::npos;
  };
  EXPECT_TRUE(
      says("on 2 other prompts: budget 1024, gamma 6, inner gamma 1: 1.875 ms/token "
           "predicted, 2.000 measured (-6%); 2.20x ar predicted, 2.00x measured (+10%)."));
  EXPECT_TRUE(says("1.20x as fast predicted, 1.25x measured on a tuning prompt."));
  t.own_prompts = false;
  t.cut_short = true;
  t.speedup_error_pct.reset();
  EXPECT_TRUE(says("1.875 ms/token predicted, 2.000 measured (-6%). Against the defaults"));
  t.measured_ms_per_token.reset();
  EXPECT_TRUE(says("on the first measured prompt, as the data set has no more: "));
  EXPECT_TRUE(says("inner gamma 1: 1.875 ms/token predicted. "));
  EXPECT_TRUE(says("Not all budgets were tried"));
  t.chosen = t.defaults->setting;
  EXPECT_TRUE(says(" These are the defaults."));
  t.overruled = TunedSetting{512, 4, 1};
  t.defaults->best_measured_ms_per_token = 5;
  EXPECT_TRUE(
      says("These are the defaults: budget 512, gamma 4, inner gamma 1 is predicted to be "
           "faster, but on a tuning prompt it was 0.50x as fast."));
  t.defaults.reset();
  t.overruled.reset();
  t.chosen = {1024, 9, 0};
  EXPECT_TRUE(says("gamma 9, inner gamma 0 (without the drafter): "));
  c.tuning.reset();
  EXPECT_EQ(tuning_text(c), "");
}

TEST(Table, NamesFromOutsideCannotDriveTheTerminal) {
  RunResult r = sample_result();
  r.cases[0].target->name = "a\x1b[31mb";
  r.cases[2].status_reason = "\x07 bell\r\n";
  for (const std::string& text : {to_table(r), to_markdown(r)}) {
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_EQ(text.find('\x07'), std::string::npos);
    EXPECT_EQ(text.find('\r'), std::string::npos);
  }
}

TEST(Table, NoiseIsNotedWhereNothingElseSaysSo) {
  const std::string note = "! ar: noise 70.7%";
  RunResult r = sample_result();
  EXPECT_EQ(to_table(r).find(note), std::string::npos);
  r.cases[0].timing.noise_pct = 70.7;
  EXPECT_NE(to_table(r).find(note), std::string::npos);
  r.cases[0].validity.reasons.emplace_back("noise 70.7% over --max-noise 50%");
  EXPECT_EQ(to_table(r).find(note), std::string::npos);
}

TEST(Table, SaysWhichMeanItQuotesAndWhatItsIntervalsCover) {
  RunResult r = sample_result();
  EXPECT_NE(table_words(r).find("geometric means over the prompts"), std::string::npos);
  const std::string prompts = "Student's t over the prompts", one = "says nothing of other prompts";
  EXPECT_NE(table_words(r).find(prompts), std::string::npos);
  EXPECT_EQ(table_words(r).find(one), std::string::npos);
  CaseResult& c = r.cases[1];
  c.timing.ms_per_token.ci95_over = c.speedup->ci95_over = IntervalOver::kRepetitions;
  c.acceptance[1].ci95->over = IntervalOver::kRepetitions;
  c.recovery->ci95_over = IntervalOver::kRepetitions;
  EXPECT_EQ(table_words(r).find(prompts), std::string::npos);
  EXPECT_NE(table_words(r).find(one), std::string::npos);
}

TEST(Table, AnIntervalOfTwoPromptsMayBeWide) {
  RunResult r = sample_result();
  r.cases[1].speedup->ci95_low = 0.001;
  r.cases[1].speedup->ci95_high = 4e8;
  EXPECT_NE(to_table(r).find("0.001-4e+08"), std::string::npos);
  EXPECT_LE(max_line_width(to_table(r)), 100U);
}

TEST(Table, PublishedRuleIsNeverCalledLossless) {
  RunResult r = sample_result();
  r.cases[1].lossless = {LosslessMode::kTokens, false, true, 5, {}, {}, {}};
  EXPECT_NE(to_table(r).find("NOT lossless"), std::string::npos);
  EXPECT_EQ(to_table(r).find("equal (5)"), std::string::npos);
  r.cases[1].lossless.exact_rule = true;
  EXPECT_EQ(to_table(r).find("NOT lossless"), std::string::npos);
  EXPECT_NE(to_table(r).find("equal (5)"), std::string::npos);
}

TEST(Table, OfNothing) {
  RunResult r;
  r.context = sample_context();
  EXPECT_LE(max_line_width(to_table(r)), 100U);
  EXPECT_EQ(to_table(r).find("Decoding"), std::string::npos);
  EXPECT_EQ(to_jsonl(r), "");
}

TEST(Markdown, EscapesCells) {
  TextTable t;
  t.head = {"a|b", "c"};
  t.rows = {{"x\\y", "1"}};
  EXPECT_EQ(render_markdown(t), "| a\\|b | c |\n| --- | ---: |\n| x\\\\y | 1 |\n");
}

TEST(Wrap, CutsOnlyWhatIsTooLong) {
  EXPECT_EQ(wrap("one two three", 8, 2), "one two\n  three\n");
  EXPECT_EQ(wrap("abcdefghij", 4, 1), "abcd\n efg\n hij\n");
  EXPECT_EQ(wrap("", 8, 2), "\n");
  EXPECT_EQ(wrap("\u00e4\u00e4\u00e4 \u00e4", 5, 0), "\u00e4\u00e4\u00e4 \u00e4\n");
}

TEST(ShortNumber, ShowsFiveCharacters) {
  EXPECT_EQ(short_number(0.12345), "0.123");
  EXPECT_EQ(short_number(12.345), "12.35");
  EXPECT_EQ(short_number(123.45), "123.5");
  EXPECT_EQ(short_number(1234.5), "1234");
  EXPECT_EQ(short_number(99999.4), "99999");
  EXPECT_EQ(short_number(234567.0), "2e+05");
  EXPECT_EQ(short_number(std::nullopt), "-");
  EXPECT_EQ(short_number(NAN), "-");
}

std::size_t fields_of(const std::string& line) {
  std::size_t n = 1;
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (c == ',' && !quoted) ++n;
  }
  return n;
}

TEST(Csv, EveryLineHasEveryColumn) {
  RunResult r = sample_result();
  r.cases[2].status_reason = "a, \"b\"";  // no line break, so that lines are records
  std::istringstream in(to_csv(r));
  std::string header, line;
  std::getline(in, header);
  std::size_t lines = 0;
  for (; std::getline(in, line); ++lines) EXPECT_EQ(fields_of(line), fields_of(header)) << line;
  EXPECT_EQ(lines, 3U);
  EXPECT_NE(to_csv(r).find("\"a, \"\"b\"\"\""), std::string::npos);
}

TEST(Csv, AMiddleLevelHasColumnsWhereThereIsOne) {
  RunResult r = sample_result();
  EXPECT_EQ(to_csv(r).find("middle"), std::string::npos);
  std::vector<LevelResult>& levels = r.cases[1].acceptance;
  levels.insert(levels.begin() + 1, levels.front());
  levels[1].name = "middle";
  levels[1].rounds = 12345;
  const std::string csv = to_csv(r);
  EXPECT_NE(csv.find("acceptance.middle.rounds"), std::string::npos);
  EXPECT_NE(csv.find(",12345,"), std::string::npos);
}

}  // namespace
}  // namespace triforce
