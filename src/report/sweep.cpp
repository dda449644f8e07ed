#include "triforce/sweep.h"

#include <algorithm>
#include <map>

#include "report/printers.h"
#include "report/read_json.h"

namespace triforce {
namespace {

constexpr JsonLimits kLimits{std::int64_t{1} << 30, 20, std::int64_t{1} << 27};

// "3, 5-9": numbers in rising order.
std::string number_list(const std::vector<std::int64_t>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    out += fmt::format("{}{}", out.empty() ? "" : ", ", numbers[i]);
    if (end - i > 1) out += fmt::format("{}{}", end - i > 2 ? "-" : ", ", numbers[end - 1]);
    i = end;
  }
  return out;
}

bool is_measured(const SweepRow& row) {
  return std::any_of(row.result.cases.begin(), row.result.cases.end(),
                     [](const CaseResult& c) { return c.timing.ms_per_token.n > 0; });
}

// Those in which no row has anything: speedups of cases without a baseline.
void drop_empty_columns(TextTable& t) {
  for (std::size_t c = t.head.size(); c-- > t.left_columns;) {
    const bool empty =
        std::all_of(t.rows.begin(), t.rows.end(), [c](const auto& row) { return row[c] == "-"; });
    if (empty) drop_column(t, c);
  }
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
                   const std::optional<std::string>& recipe) {
  TextTable t;
  t.title = "Cases";
  t.head = {"case"};
  for (std::size_t i = 0; i < sweep.rows.size(); ++i) {
    const SweepRow& row = sweep.rows[i];
    if (row.recipe != recipe || texts[i].tables.empty()) continue;
    const TextTable& of = texts[i].tables.front();
    if (t.rows.empty()) {
      for (const auto& [name, value] : row.options) t.head.push_back(name);
      t.left_columns = t.head.size() + 1;  // and the method
      t.optional = {"ms 95% CI", "x 95% CI"};
    }
    const std::vector<std::size_t> at = add_columns(of.head, t.left_columns - 1, t);
    if (of.head.size() + t.left_columns - 1 == t.head.size()) t.caption = of.caption;
    for (const std::vector<std::string>& cells : of.rows) {
      std::vector<std::string> line = {fmt::format("{}", row.number)};
      for (const auto& [name, value] : row.options) line.push_back(printable(to_text(value)));
      line.resize(t.head.size(), "-");
      for (std::size_t k = 0; k < cells.size(); ++k) line[at[k]] = cells[k];
      t.rows.push_back(std::move(line));
    }
  }
  drop_empty_columns(t);
  return t;
}

TextTable published_table(const SweepRecipe& recipe) {
  TextTable t;
  t.title = fmt::format("Published: {}", recipe.source);
  t.caption = "at the paper's size; figures of another size here are not to be compared with them";
  t.head = {"method", "setting", "ms/token", "speedup", "alpha", "recovery", "copied", "source"};
  t.left_columns = 2;
  for (const PublishedPoint& p : recipe.published) {
    const auto text = [](const std::optional<double>& x, int digits) {
      return x ? fmt::format("{:.{}f}", *x, digits) : std::string("-");
    };
    t.rows.push_back({p.method, p.setting, text(p.ms_per_token, 1),
                      p.speedup ? text(p.speedup, 2) + "x" : "-", text(p.alpha, 4),
                      text(p.recovery, 3), text(p.copied, 2), p.source});
  }
  drop_empty_columns(t);
  t.optional = {"source"};
  return t;
}

void add_tables(const SweepResult& sweep, const std::vector<ReportText>& texts, ReportText& all) {
  if (sweep.recipes.empty()) all.tables = {table_of(sweep, texts, std::nullopt)};
  for (const SweepRecipe& recipe : sweep.recipes) {
    TextTable ours = table_of(sweep, texts, recipe.name);
    ours.title = fmt::format("{}: {}", recipe.name, recipe.title);
    if (&recipe != &sweep.recipes.back()) ours.caption.clear();
    if (!recipe.about.empty()) {
      ours.caption = recipe.about + (ours.caption.empty() ? "" : "; " + ours.caption);
    }
    all.tables.push_back(std::move(ours));
    if (!recipe.published.empty()) all.tables.push_back(published_table(recipe));
    for (const std::string& line : recipe.cannot) {
      all.notes.push_back(
          printable(fmt::format("{}: published, not run here: {}", recipe.name, line)));
    }
  }
}

// Each note once, with the cases that it is of.
std::vector<std::string> notes_of(const SweepResult& sweep, const std::vector<ReportText>& texts) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::int64_t>> of;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    for (const std::string& note : texts[i].notes) {
      std::vector<std::int64_t>& numbers = of[note];
      if (numbers.empty()) order.push_back(note);
      if (numbers.empty() || numbers.back() != sweep.rows[i].number) {
        numbers.push_back(sweep.rows[i].number);
      }
    }
  }
  std::vector<std::string> notes;
  for (const std::string& note : order) {
    const auto& numbers = of.at(note);
    notes.push_back(
        fmt::format("case{} {}: {}", numbers.size() == 1 ? "" : "s", number_list(numbers), note));
  }
  return notes;
}

std::string options_text(const SweepRow& row) {
  std::string text;
  for (const auto& [name, value] : row.options) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, to_text(value));
  }
  return text.empty() ? text : " (" + text + ")";
}

std::string case_title(const SweepRow& row) {
  return printable(fmt::format("Case {}{}", row.number, options_text(row)));
}

// "12 cases: 11 complete, 1 error. Fastest against its baseline: case 4 (budget 512), triforce
// 2.31x."
std::string headline_of(const SweepResult& sweep) {
  std::map<std::string, int> others;
  int measured = 0;
  const SweepRow* best = nullptr;
  const CaseResult* best_case = nullptr;
  for (const SweepRow& row : sweep.rows) {
    CaseStatus worst = CaseStatus::kOk;
    for (const CaseResult& c : row.result.cases) {
      if (c.status != CaseStatus::kOk) worst = c.status;
      const bool faster = c.speedup && c.speedup->value && c.validity.comparable &&
                          (best_case == nullptr || *c.speedup->value > *best_case->speedup->value);
      if (!faster) continue;
      best = &row;
      best_case = &c;
    }
    worst == CaseStatus::kOk&& is_measured(row) ? ++measured : ++others[to_string(worst)];
  }
  std::string text = fmt::format("{} case{}: {} complete", sweep.rows.size(),
                                 sweep.rows.size() == 1 ? "" : "s", measured);
  for (const auto& [status, count] : others) text += fmt::format(", {} {}", count, status);
  text += '.';
  if (best != nullptr) {
    text += fmt::format(" Fastest against its baseline: case {}{}, {} {:.2f}x.", best->number,
                        options_text(*best), best_case->name, *best_case->speedup->value);
  }
  return printable(text);
}

ReportText describe_sweep(const SweepResult& sweep) {
  std::vector<ReportText> texts;
  for (const SweepRow& row : sweep.rows) texts.push_back(describe_result(row.result, false));
  ReportText all;
  const auto first = std::find_if(sweep.rows.begin(), sweep.rows.end(), is_measured);
  if (first != sweep.rows.end()) {
    all.header = texts[static_cast<std::size_t>(first - sweep.rows.begin())].header;
    all.header.push_back(fmt::format(
        "this is of case {}; what differs between cases is in the columns", first->number));
  }
  add_tables(sweep, texts, all);
  for (std::string& note : notes_of(sweep, texts)) all.notes.push_back(std::move(note));
  all.headline = headline_of(sweep);
  return all;
}

}  // namespace

std::string to_json(const SweepResult& sweep) { return to_json_text(sweep) + '\n'; }

std::string to_jsonl(const SweepResult& sweep) {
  std::string out;
  for (const SweepRow& row : sweep.rows) out += to_jsonl(row.result);
  return out;
}

std::string to_csv(const SweepResult& sweep) {
  std::vector<RunResult> results;
  for (const SweepRow& row : sweep.rows) results.push_back(row.result);
  return to_csv(results);
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
    out += "### " + case_title(row) + "\n\n" + to_markdown(row.result, details) + '\n';
  }
  return out + render_markdown(describe_sweep(sweep));
}

SweepResult read_json_sweep(std::string_view text, const std::string& source) {
  return read_json_text<SweepResult>(text, source, kLimits, "InvalidResult");
}

std::string sweep_schema() {
  return json_schema_text<SweepResult>(kSweepSchema, "A sweep of triforce-bench (--json)");
}

}  // namespace triforce
