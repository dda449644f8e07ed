#include "core/file.h"
#include "core/utf8.h"
#include "report/upgrade.h"
#include "triforce/foreign.h"
#include "triforce/sweep.h"

namespace triforce {
namespace {

// A document has its cases in a member of that name; in strings the quotes would be escaped.
bool is_jsonl(std::string_view text) {
  const std::string_view first = text.substr(0, text.find('\n'));
  const std::size_t last = first.find_last_not_of(" \t\r");
  return last != std::string_view::npos && first[last] == '}' &&
         first.find("\"cases\":") == std::string_view::npos;
}

// Its schema is the first member.
bool is_sweep(std::string_view text) {
  return text.substr(0, 64).find(family_of(kSweepSchema)) != std::string_view::npos;
}

// A path in a sweep, a document or a line, as ResultFile has it.
std::string below_the_case(std::string_view path) {
  for (const std::string_view above : {"cases[].result.", "cases[]."}) {
    if (path.starts_with(above)) path.remove_prefix(above.size());
  }
  return std::string(path);
}

}  // namespace

SavedResult read_saved_result(const std::filesystem::path& path, std::set<std::string>* absent) {
  const std::string name = path.string();
  const std::string text = read_file(path, kMaxResultBytes);
  SavedResult saved;
  if (is_sweep(text)) {
    saved.sweep = read_json_sweep(text, name, absent);
  } else if (says_foreign(text)) {
    throw_input("InvalidResult",
                "{}: expected results of triforce-bench, found foreign ones, which export shows in "
                "tables and nothing is compared with",
                quote_text(name));
  } else if (is_jsonl(text)) {
    saved.runs = read_jsonl_results(text, name, absent);
  } else {
    saved.runs.push_back(read_json_result(text, name, absent));
  }
  return saved;
}

ResultFile read_result_file(const std::filesystem::path& path) {
  std::set<std::string> absent;
  SavedResult saved = read_saved_result(path, &absent);
  ResultFile file{path.string(), std::move(saved.runs)};
  if (saved.sweep) {
    for (SweepRow& row : saved.sweep->rows) file.results.push_back(result_of(std::move(row)));
  }
  for (const std::string& member : absent) file.absent.insert(below_the_case(member));
  for (const RunResult& run : file.results) {
    if (!run.cases.empty()) return file;
  }
  throw_input("InvalidResult", "{}: expected a case, found none", quote_text(file.name));
}

}  // namespace triforce
