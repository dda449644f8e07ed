// Result files, as a document, as lines and of others: what is accepted is what to_json() and
// to_jsonl() write of it, and the tables can be made of it.
#include <algorithm>

#include "core/utf8.h"
#include "fuzz_target.h"
#include "triforce/foreign.h"

namespace {

using namespace triforce;

// Records of a CSV text: line ends outside of quotes.
std::size_t records(std::string_view csv) {
  std::size_t n = 0;
  bool quoted = false;
  for (const char c : csv) {
    if (c == '"') quoted = !quoted;
    if (c == '\n' && !quoted) ++n;
  }
  return n;
}

// What must hold of any text that is shown.
void check_shown(const std::string& text) {
  fuzz::require(is_valid_utf8(text), "a table that is not UTF-8");
  for (const char c : text)
    fuzz::require(c == '\n' || (c >= 0x20 && c != 0x7F) || c < 0, "control");
}

void check(std::span<const ForeignResult> foreign) {
  const auto none = [](std::string_view /*param*/, const triforce::CaseResult& /*c*/) {
    return false;
  };
  const auto is_default = [](const Param& /*param*/, const CaseResult& /*c*/) { return true; };
  std::vector<std::string> left_out;
  const std::string table =
      export_results({}, foreign, ExportFormat::kMarkdown, none, is_default, left_out);
  check_shown(table);
  const auto lines = static_cast<std::size_t>(std::count(table.begin(), table.end(), '\n'));
  fuzz::require(lines == foreign.size() + 2, "rows of the table");
}

void check(const RunResult& result) {
  const std::string json = to_json(result);
  fuzz::require(to_json(read_json_result(json, "again")) == json, "the document reads differently");
  const auto of_lines = read_jsonl_results(to_jsonl(result), "lines");
  fuzz::require(of_lines.size() == (result.cases.empty() ? 0 : 1), "results of the lines");
  for (const RunResult& r : of_lines)
    fuzz::require(to_json(r) == json, "the lines read differently");
  fuzz::require(records(to_csv(result)) == result.cases.size() + 1, "records of the CSV");
  for (const std::string& text : {to_table(result), to_markdown(result)}) check_shown(text);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  RunResult document;
  if (fuzz::outcome([&] { document = read_json_result(text, "result.json"); }).empty()) {
    check(document);
  }
  std::vector<RunResult> lines;
  if (fuzz::outcome([&] { lines = read_jsonl_results(text, "result.jsonl"); }).empty()) {
    for (const RunResult& result : lines) check(result);
  }
  std::vector<ForeignResult> foreign;
  if (fuzz::outcome([&] { foreign = read_foreign_results(text, "foreign.json"); }).empty()) {
    check(foreign);
  }
  return 0;
}
