// Tests: tests/report/printer_test.cpp, tests/report/schema_test.cpp
#include "triforce/sweep.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "report/cells.h"
#include "report/equal_table.h"
#include "report/printers.h"
#include "report/result_json.h"
#include "report/sweep_words.h"
#include "report/upgrade.h"

namespace triforce {
namespace {

constexpr JsonLimits kLimits{std::int64_t{1} << 30, 20, std::int64_t{1} << 27};

bool is_measured(const SweepRow& row) {
  return std::ranges::any_of(row.result.cases,
                             [](const CaseResult& c) { return c.timing.ms_per_token.n > 0; });
}

// Drops the columns in which no row has anything: speedups of cases without a baseline.
void drop_empty_columns(TextTable& t) {
  for (std::size_t c = t.head.size(); c-- > t.left_columns;) {
    const bool empty = std::ranges::all_of(t.rows, [c](const auto& row) { return row[c] == "-"; });
    if (!empty) continue;
    std::erase(t.optional, t.head[c]);
    drop_column(t, c);
  }
}

std::string figure(const std::optional<double>& x, int digits) {
  return x ? fmt::format("{:.{}f}", *x, digits) : std::string("-");
}

std::string metric_text(const std::optional<double>& value, CaseMetric metric) {
  if (!value) return "-";
  if (metric == CaseMetric::kSpeedup || metric == CaseMetric::kBound ||
      metric == CaseMetric::kSaving) {
    return fmt::format("{:.2f}x", *value);
  }
  if (metric == CaseMetric::kOfBound) return fmt::format("{:.2f}", *value);
  return is_rate(metric) ? fmt::format("{:.3f}", *value) : short_number(value);
}

// Instead of a result's usual table: the figures that a recipe asks for, and how the case ended.
TextTable chosen_table(const RunResult& result, const TextTable& usual,
                       const std::vector<CaseMetric>& columns) {
  TextTable t;
  t.head = {usual.head.front()};
  for (const CaseMetric metric : columns) {
    t.head.emplace_back(to_string(metric));
    t.caption += fmt::format("{}{}: {}", t.caption.empty() ? "" : "; ", to_string(metric),
                             meaning_of(metric));
  }
  t.head.push_back(usual.head.back());
  for (std::size_t i = 0; i < usual.rows.size(); ++i) {
    std::vector<std::string> line = {usual.rows[i].front()};
    for (const CaseMetric metric : columns) {
      line.push_back(metric_text(metric_of(result.cases[i], metric), metric));
    }
    line.push_back(usual.rows[i].back());
    t.rows.push_back(std::move(line));
  }
  return t;
}

// Whether the lengths of prompts, or their turns, alone tell the cases apart.
bool is_ladder(const SweepResult& sweep) {
  const auto by_length = [](const SweepRow& row) {
    return row.options.size() == 1 &&
           (row.options.front().first == "prefill" || row.options.front().first == "turn");
  };
  return sweep.rows.size() > 1 && std::ranges::all_of(sweep.rows, by_length);
}

// Acceptance of the levels below the last, "0.651 .60-.70".
std::string inner_text(const CaseResult& c) {
  std::string text;
  for (std::size_t l = 0; l + 1 < c.acceptance.size(); ++l) {
    text += (l > 0 ? " / " : "") + rate_with_interval(c.acceptance[l]);
  }
  return text.empty() ? "-" : text;
}

// A main_table() of `result` with predicted speedups, and acceptance of the inner levels.
TextTable with_ladder_columns(const RunResult& result, TextTable t) {
  const auto at = std::ranges::find(t.head, "accepted") - t.head.begin();
  t.head.insert(t.head.begin() + at, {"predicted", "inner"});
  for (std::size_t i = 0; i < t.rows.size(); ++i) {
    const CaseResult& c = result.cases[i];
    const std::string predicted = ratio(c.speedup ? c.speedup->predicted : std::nullopt);
    t.rows[i].insert(t.rows[i].begin() + at, {predicted, inner_text(c)});
  }
  t.caption +=
      "; predicted: the speedup, from single steps and acceptances; inner: accepted by the levels "
      "below";
  return t;
}

// Where the columns `names` are among those from `first` on; what is not there yet is put in, in
// the same order.
std::vector<std::size_t> add_columns(const std::vector<std::string>& names, std::size_t first,
                                     TextTable& t) {
  std::vector<std::size_t> at;
  std::size_t next = first;
  for (const std::string& name : names) {
    const auto begin = t.head.begin() + static_cast<std::ptrdiff_t>(next);
    auto found = std::find(begin, t.head.end(), name);
    if (found == t.head.end()) {
      for (std::vector<std::string>& row : t.rows) {
        row.insert(row.begin() + static_cast<std::ptrdiff_t>(next), "-");
      }
      found = t.head.insert(begin, name);
    }
    next = static_cast<std::size_t>(found - t.head.begin()) + 1;
    at.push_back(next - 1);
  }
  return at;
}

// Rows of one experiment, whose options are columns.
TextTable table_of(const SweepResult& sweep, const std::vector<ReportText>& texts,
                   const std::optional<std::string>& recipe,
                   const std::vector<CaseMetric>& columns) {
  TextTable t;
  t.title = "Cases";
  t.head = {"case"};
  std::set<std::string> shown;  // run ids
  std::string left_out;         // name of a case
  const bool climbs = columns.empty() && is_ladder(sweep);
  for (std::size_t i = 0; i < sweep.rows.size(); ++i) {
    const SweepRow& row = sweep.rows[i];
    if (row.recipe != recipe || texts[i].tables.empty()) continue;
    const TextTable& usual = texts[i].tables.front();
    TextTable of = columns.empty() ? usual : chosen_table(row.result, usual, columns);
    if (climbs) of = with_ladder_columns(row.result, std::move(of));
    if (t.rows.empty()) {
      for (const auto& [name, value] : row.options) t.head.push_back(name);
      t.left_columns = t.head.size() + 1;  // and the method
      if (columns.empty()) t.optional = {"ms 95% CI", "x 95% CI"};
      if (climbs) t.optional.insert(t.optional.begin() + 1, "predicted");
    }
    const std::vector<std::size_t> at = add_columns(of.head, t.left_columns - 1, t);
    if (of.head.size() + t.left_columns - 1 == t.head.size()) t.caption = of.caption;
    for (std::size_t of_case = 0; of_case < of.rows.size(); ++of_case) {
      if (is_shown_elsewhere(row.result.cases[of_case], shown)) {
        left_out = row.result.cases[of_case].name;
        continue;
      }
      const std::vector<std::string>& cells = of.rows[of_case];
      std::vector<std::string> line = {fmt::format("{}", row.number)};
      for (const auto& [name, value] : row.options) line.push_back(cell_text(value));
      line.resize(t.head.size(), "-");
      for (std::size_t k = 0; k < cells.size(); ++k) line[at[k]] = cells[k];
      t.rows.push_back(std::move(line));
    }
    shown.insert(row.result.run_id);
  }
  drop_empty_columns(t);
  if (!left_out.empty()) {
    const std::string once =
        fmt::format("{}: once for the cases that share its generations", printable(left_out));
    t.caption += (t.caption.empty() ? "" : "; ") + once;
  }
  return t;
}

TextTable published_table(const SweepRecipe& recipe) {
  TextTable t;
  t.title = fmt::format("Published: {}", recipe.source);
  t.caption = "at the paper's size; figures of another size here are not to be compared with them";
  t.head = {"method",   "setting", "ms/token", "speedup", "alpha",
            "recovery", "copied",  "ms/pass",  "pass",    "note"};
  t.left_columns = 2;
  for (const PublishedPoint& p : recipe.published) {
    if (p.needs) continue;
    t.rows.push_back({p.method, p.setting, figure(p.ms_per_token, 1),
                      p.speedup ? figure(p.speedup, 2) + "x" : "-", figure(p.alpha, 4),
                      figure(p.recovery, 3), figure(p.copied, 2), figure(p.pass_ms, 2),
                      p.pass.value_or("-"), cite(p.source, t)});
  }
  drop_empty_columns(t);
  return t;
}

// Not beside any case: what it needs is in each row.
TextTable elsewhere_table(const SweepRecipe& recipe) {
  TextTable t;
  t.title = fmt::format("Published, of what cannot run here: {}", recipe.source);
  t.caption = "no case here is one of these experiments";
  t.head = {"method", "setting", "speedup", "tokens/round", "needs", "note"};
  t.left_columns = 2;
  for (const PublishedPoint& p : recipe.published) {
    if (!p.needs) continue;
    t.rows.push_back({p.method, p.setting, p.speedup ? figure(p.speedup, 2) + "x" : "-",
                      figure(p.tokens_per_round, 2), *p.needs, cite(p.source, t)});
  }
  drop_empty_columns(t);
  return t;
}

// Sides of one case are told apart by their methods.
std::string side_text(const DirectionSide& side, const DirectionSide& other, CaseMetric metric) {
  const char* const unit = side.value && is_time(metric) ? " ms" : "";
  const std::string value = metric_text(side.value, metric) + unit;
  if (!side.number) return value;
  const std::string method = side.number == other.number ? ", " + side.method : "";
  return fmt::format("{} (case {}{})", value, *side.number, method);
}

std::string words_of(DirectionVerdict verdict) {
  return verdict == DirectionVerdict::kNotMeasured ? "not measured" : to_string(verdict);
}

// "acceptance rises with the budget: acceptance 0.912 (case 7) against 0.803 (case 1), difference
// 0.109 (95% CI 0.080-0.140), expected above 0: holds"
std::string finding_of(const SweepDirection& d) {
  std::string text =
      fmt::format("{}: {} {} against {}", d.text, to_string(d.metric),
                  side_text(d.side, d.than, d.metric), side_text(d.than, d.side, d.metric));
  const int digits = d.is_difference() ? 3 : 2;
  if (d.effect) {
    text +=
        fmt::format(", {} {:.{}f}", d.is_difference() ? "difference" : "ratio", *d.effect, digits);
    if (d.ci95_low && d.ci95_high) {
      text += fmt::format(" (95% CI {})",
                          interval_text(figure(d.ci95_low, digits), figure(d.ci95_high, digits)));
    }
    text += fmt::format(", expected {} {:g}",
                        d.relation == DirectionRelation::kGreater ? "above" : "below", d.threshold);
  }
  text += fmt::format(": {}", words_of(d.verdict));
  if (d.reason) text += fmt::format(", {}", *d.reason);
  return text;
}

void add_findings(const SweepResult& sweep, ReportText& all) {
  for (const SweepRecipe& recipe : sweep.recipes) {
    for (const SweepDirection& d : recipe.directions) {
      const std::string of = sweep.recipes.size() > 1 ? recipe.name + ": " : "";
      all.findings.push_back(of + finding_of(d));
    }
  }
}

void add_tables(const SweepResult& sweep, const std::vector<ReportText>& texts, ReportText& all) {
  if (sweep.recipes.empty()) all.tables = {table_of(sweep, texts, std::nullopt, {})};
  for (const SweepRecipe& recipe : sweep.recipes) {
    TextTable ours = table_of(sweep, texts, recipe.name, recipe.columns);
    ours.title = fmt::format("{}: {}", recipe.name, recipe.title);
    if (&recipe != &sweep.recipes.back()) ours.caption.clear();
    if (!recipe.about.empty()) {
      ours.caption = recipe.about + (ours.caption.empty() ? "" : "; " + ours.caption);
    }
    all.tables.push_back(std::move(ours));
    for (TextTable& t :
         std::array{equal_table(sweep, recipe), published_table(recipe), elsewhere_table(recipe)}) {
      if (!t.rows.empty()) all.tables.push_back(std::move(t));
    }
    for (const std::string& line : recipe.cannot) {
      all.notes.push_back(fmt::format("{}: published, not run here: {}", recipe.name, line));
    }
  }
}

// Each note once, with the cases that it is of.
std::vector<std::string> notes_of(const SweepResult& sweep, const std::vector<ReportText>& texts) {
  std::vector<NoteOfCases> notes;
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::int64_t number = sweep.rows[i].number;
    for (const std::string& note : texts[i].notes) {
      const auto [it, is_new] = places.emplace(note, notes.size());
      if (is_new) notes.push_back({note, {}});
      std::vector<std::int64_t>& numbers = notes[it->second].numbers;
      if (numbers.empty() || numbers.back() != number) numbers.push_back(number);
    }
  }
  std::vector<std::string> lines;
  for (const NoteOfCases& n : merge_values(std::move(notes))) {
    lines.push_back(fmt::format("case{} {}: {}", n.numbers.size() == 1 ? "" : "s",
                                number_list(n.numbers), n.text));
  }
  return lines;
}

std::string options_text(const SweepRow& row) {
  const std::string text = options_text(row.options);
  return text.empty() ? text : " (" + text + ")";
}

std::string case_title(const SweepRow& row) {
  return fmt::format("Case {}{}", row.number, options_text(row));
}

// " 5 of 7 directions hold, 2 undecided.", or nothing without directions.
std::string verdicts_text(const SweepResult& sweep) {
  std::map<DirectionVerdict, int> counts;
  int all = 0;
  for (const SweepRecipe& recipe : sweep.recipes) {
    for (const SweepDirection& d : recipe.directions) {
      ++counts[d.verdict];
      ++all;
    }
  }
  if (all == 0) return "";
  std::string text = fmt::format(" {} of {} direction{} hold{}", counts[DirectionVerdict::kHolds],
                                 all, all == 1 ? "" : "s", all == 1 ? "s" : "");
  for (const auto& [verdict, count] : counts) {
    if (verdict != DirectionVerdict::kHolds)
      text += fmt::format(", {} {}", count, words_of(verdict));
  }
  return text + '.';
}

// "12 cases: 11 complete, 1 error. 5 of 7 directions hold, 2 undecided." and the best settings.
std::string headline_of(const SweepResult& sweep) {
  std::map<std::string, int> others;
  int measured = 0;
  for (const SweepRow& row : sweep.rows) {
    CaseStatus worst = CaseStatus::kOk;
    for (const CaseResult& c : row.result.cases) {
      if (c.status != CaseStatus::kOk) worst = c.status;
    }
    worst == CaseStatus::kOk&& is_measured(row) ? ++measured : ++others[to_string(worst)];
  }
  std::string text = fmt::format("{} case{}: {} complete", sweep.rows.size(),
                                 sweep.rows.size() == 1 ? "" : "s", measured);
  for (const auto& [status, count] : others) text += fmt::format(", {} {}", count, status);
  text += '.' + verdicts_text(sweep);
  if (is_ladder(sweep)) return text;  // one length is no better setting than another
  for (const std::string& sentence : best_settings(sweep)) text += ' ' + sentence;
  return text;
}

ReportText describe_sweep(const SweepResult& sweep) {
  std::vector<ReportText> texts;
  for (const SweepRow& row : sweep.rows) texts.push_back(describe_result(row.result, false));
  ReportText all;
  const auto first = std::ranges::find_if(sweep.rows, is_measured);
  if (first != sweep.rows.end()) {
    all.header = texts[static_cast<std::size_t>(first - sweep.rows.begin())].header;
    all.header.push_back(fmt::format(
        "this is of case {}; what differs between cases is in the columns", first->number));
  }
  add_tables(sweep, texts, all);
  add_findings(sweep, all);
  for (const SweepLadder& ladder : sweep.ladders.value_or(std::vector<SweepLadder>{})) {
    if (ladder.text) all.lengths.push_back(*ladder.text);
    for (const LadderStep& step : ladder.steps) all.notes.push_back(step.text);
  }
  for (std::string& note : notes_of(sweep, texts)) all.notes.push_back(std::move(note));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    for (const std::string& line : texts[i].tuning) {
      all.tuning.push_back(fmt::format("case {}: {}", sweep.rows[i].number, line));
    }
  }
  all.headline = headline_of(sweep);
  return all;
}

}  // namespace

RunResult result_of(SweepRow row) {
  row.result.sweep = static_cast<const SweepPlace&>(row);
  return std::move(row.result);
}

std::string to_json(const SweepResult& sweep) { return to_json_text(sweep) + '\n'; }

std::string to_jsonl(const SweepResult& sweep) {
  std::string out;
  for (const SweepRow& row : sweep.rows) out += to_jsonl(result_of(row));
  return out;
}

std::string to_csv(const SweepResult& sweep, const IsColumn& is_column) {
  std::vector<RunResult> results;
  for (const SweepRow& row : sweep.rows) results.push_back(result_of(row));
  return to_csv(results, is_column);
}

std::string to_table(const SweepResult& sweep, const TableStyle& style) {
  std::string out;
  for (const SweepRow& row : sweep.rows) {
    if (!style.details) break;
    out += wrap(case_title(row), style.width, 2) + '\n' + to_table(row.result, style) + '\n';
  }
  return out + render_report(describe_sweep(sweep), style);
}

std::string to_markdown(const SweepResult& sweep, bool details) {
  std::string out;
  for (const SweepRow& row : sweep.rows) {
    if (!details) break;
    out +=
        "### " + markdown_text(case_title(row)) + "\n\n" + to_markdown(row.result, details) + '\n';
  }
  return out + render_markdown(describe_sweep(sweep));
}

SweepResult read_json_sweep(std::string_view text, const std::string& source,
                            AbsentMembers* absent) {
  return read_json_text<SweepResult>(text, source, kLimits, "InvalidResult", absent,
                                     upgrade_result);
}

std::string sweep_schema() {
  return json_schema_text<SweepResult>(kSweepSchema, "A sweep of triforce-bench (--json)");
}

}  // namespace triforce
