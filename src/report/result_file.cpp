#include "core/file.h"
#include "core/utf8.h"
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
  return text.substr(0, 64).find(kSweepSchema) != std::string_view::npos;
}

}  // namespace

ResultFile read_result_file(const std::filesystem::path& path) {
  ResultFile file{path.string(), {}};
  const std::string text = read_file(path, kMaxResultBytes);
  if (is_sweep(text)) {
    for (SweepRow& row : read_json_sweep(text, file.name).rows) {
      file.results.push_back(result_of(std::move(row)));
    }
  } else if (says_foreign(text)) {
    throw_input("InvalidResult",
                "{}: expected results of triforce-bench, found foreign ones, which export shows in "
                "tables and nothing is compared with",
                quote_text(file.name));
  } else if (is_jsonl(text)) {
    file.results = read_jsonl_results(text, file.name);
  } else {
    file.results.push_back(read_json_result(text, file.name));
  }
  for (const RunResult& run : file.results) {
    if (!run.cases.empty()) return file;
  }
  throw_input("InvalidResult", "{}: expected a case, found none", quote_text(file.name));
}

}  // namespace triforce
