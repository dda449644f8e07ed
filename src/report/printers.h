// The terminal and the markdown printer share this: a result as lines, tables and notes.
#pragma once
#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/utf8.h"
#include "triforce/report.h"

namespace triforce {

struct TextTable {
  std::string title;
  std::string caption;  // what the columns mean, one line
  std::vector<std::string> head;
  std::size_t left_columns = 1;  // these are aligned left, the others right
  std::vector<std::vector<std::string>> rows;
  // Columns that are left out where the table would be too wide, the first of them first.
  std::vector<std::string> optional = {};
  std::vector<std::string> notes = {};  // below it, see cite()
};

struct ReportText {
  std::vector<std::string> header;         // program, models, data, machine
  std::vector<TextTable> tables;           // without the empty ones
  std::vector<std::string> findings = {};  // of sweeps: whether they show what was to be shown
  std::vector<std::string> lengths = {};   // of sweeps: from which context to which a method pays
  std::vector<std::string> notes;          // failures, warnings and reasons against comparing
  std::vector<std::string> tuning = {};    // what auto chose, a line a method
  std::string headline;
};
// Returns whether the other cases of its run are compared with it.
bool is_baseline(const CaseResult& c);
// Returns that of a run; nullptr: it has none.
const CaseResult* baseline_of(const RunResult& run);
// Whether one of its passes is over selected chunks. Older results do not say.
bool selects(const CaseResult& c);
// Whether the target over selected chunks verifies what a drafter proposes, and the full cache
// that: arXiv 2404.11912, section 4.
bool is_triforce(const CaseResult& c);
// Returns whether a case shows nothing that another row of the table does not. All its generations
// are then those of a baseline in the runs that are shown.
bool is_shown_elsewhere(const CaseResult& c, const std::set<std::string>& run_ids);
// Says what auto chose for a case and what came of it, in two sentences at most. It is empty if
// nothing was left to auto.
std::string tuning_text(const CaseResult& c);
// Predicted times by budget and gamma.
TextTable tuning_table(const RunResult& result);
// `details`: all tables, else the first alone.
ReportText describe_result(const RunResult& result, bool details);
// Says in a sentence what came out: "TriForce is 1.82x faster than autoregressive decoding (95% CI
// 1.65-1.97): 2.17 against 3.94 ms/token, output identical." Empty if nothing was measured.
std::string headline(const RunResult& result);

// The whole of it, for a terminal and in GitHub markdown.
std::string render_report(const ReportText& report, const TableStyle& style);
std::string render_markdown(const ReportText& report);

void drop_column(TextTable& table, std::size_t column);
// "[2]": the cell that sends to a note below the table, which is there once however often it is
// cited.
std::string cite(const std::string& note, TextTable& table);

// Texts, each once, in the order of their first appearance, with the names that go with it:
// "ar, triforce".
using NamesByText = std::vector<std::pair<std::string, std::string>>;
void add_name(NamesByText& found, std::string text, const std::string& name);
// The texts that `text_of` gives for cases, with their names. Cases without a text are left out.
NamesByText names_by_text(const RunResult& result,
                          const std::function<std::string(const CaseResult&)>& text_of);

// Columns padded with spaces, two between them; no trailing blanks. Cells are made printable. Wider
// than `width` only if it is so without its optional columns.
std::string render_text(TextTable table, std::size_t width);
std::string render_markdown(const TextTable& table);
// Text for GitHub markdown that is no markup, whatever it holds: printable, and escaped where it
// would be HTML, a link or the end of a cell.
std::string markdown_text(std::string_view text);
// Returns `text` with these characters replaced by what stands beside each.
std::string replaced(std::string_view text,
                     std::initializer_list<std::pair<char, std::string_view>> by);
// `text`, printable, in lines of at most `width` columns, the first from `column` on, later ones
// indented; words longer than a line are cut across lines.
std::string wrap(const std::string& text, std::size_t width, std::size_t indent,
                 std::size_t column = 0);

// "3, 5-9": numbers in rising order.
std::string number_list(const std::vector<std::int64_t>& numbers);
// "budget 512, temp 0.6"
std::string options_text(const std::vector<Param>& options);

// A value in a table: of a long list in brackets the beginning, and how many numbers it has.
std::string cell_text(const ParamValue& value);

// Five characters: more digits the smaller the value, "2e+05" above 99999. "-" for nothing.
std::string short_number(const std::optional<double>& value);
std::string percent(const std::optional<double>& fraction);  // "61%", "-" for nothing
// The one notation of intervals, of their ends as text: "0.37-2.46", and "-9.8% to 8.8%" where an
// end is negative.
std::string interval_text(const std::string& low, const std::string& high);
std::string byte_size(std::int64_t bytes);    // "13.5 GB", powers of 1000
std::string parameter_count(std::int64_t n);  // "6.74 B", "6.8 M"
// "target: llama-7B-128K, 32 layers of 4096, ..., 6.74 B parameters, f16 13.48 GB"
std::string model_line(std::string_view role, const ModelInfo& model);
}  // namespace triforce
