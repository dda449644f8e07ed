// The result of a run as plain data, each field described once: fields() gives its name in result
// files and what it is, with its unit. The JSON files, their strict reader, the CSV columns and the
// published schema (data/schema/) follow from that. An empty optional means "not measured". Needs
// nothing of the engine.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/case_result.h"
#include "triforce/error.h"
#include "triforce/result_context.h"

namespace triforce {

inline constexpr std::string_view kResultSchema = "triforce-bench.result/4";

// SweepPlace says which case of a sweep a run was.
struct SweepPlace {
  std::int64_t number = 0;
  std::optional<std::string> recipe;

  friend bool operator==(const SweepPlace&, const SweepPlace&) = default;
};
void fields(auto& v, SweepPlace& p) {
  v("case", p.number, "number of the case, from 1");
  v("recipe", p.recipe, "name of its experiment; null: options of the command line alone");
}

struct RunResult {
  std::string run_id;
  ExitCode exit_code = ExitCode::kOk;
  ResultContext context;
  std::optional<SweepPlace> sweep = {};
  std::vector<CaseResult> cases;
};
// These fields of the run stand in its document.
void run_fields(auto& v, RunResult& r) {
  v.constant("schema", kResultSchema, "format of this document");
  v("run_id", r.run_id, "start of the run and a hash");
  v("exit_code", r.exit_code, "exit status of the program");
  v("context", r.context, "machine, build and command line");
}
// And in a line of JSONL or CSV, which stands alone; a sweep's document says it beside the run.
void line_fields(auto& v, RunResult& r) {
  run_fields(v, r);
  v("sweep", r.sweep, "which case of a sweep it was; null: of none");
}
void fields(auto& v, RunResult& r) {
  run_fields(v, r);
  v("cases", r.cases, "one per method");
}

// ---- Result files. All texts end in a newline.
// One document: strict JSON, UTF-8; a number that is not finite is null.
std::string to_json(const RunResult& result);
// Writes one case a line: what line_fields() says of the run, then the fields of the case.
std::string to_jsonl(const RunResult& result);
// A header and one line a case, RFC 4180 quoting. A column is named by its path in the document
// ("timing.ms_per_token.median", "acceptance.outer.alpha"), or in a line of JSONL ("sweep.case"),
// has every plain value of context and case, and is empty for null; lists of values are joined with
// ';'. Malformed UTF-8 is U+FFFD, as in JSON, and controls are '?'. A text that begins with '=',
// '+',
// '-', '@', a tab or a carriage return, and is no number, has an apostrophe in front, so that no
// spreadsheet takes it for a formula.
// `is_column` says of a param whether it has a column; null: each has one.
using IsColumn = std::function<bool(std::string_view param)>;
std::string to_csv(std::span<const RunResult> results, const IsColumn& is_column = nullptr);
inline std::string to_csv(const RunResult& result, const IsColumn& is_column = nullptr) {
  return to_csv({&result, 1}, is_column);
}

// Read back what to_json() and to_jsonl() wrote, in this build or an older one. `source` names the
// text in messages. Which members must be there core/fields.h says: one that may be null may be
// absent and is then read as null, for older builds did not write every member of kResultSchema;
// `absent`, unless it is null, gets the paths of those ("cases[].memory.peak"). Strict otherwise:
// unknown members (a newer build's, whose meaning cannot be known), missing and repeated ones,
// other types, other schemas and rates that do not follow from their counters throw
// Error(kBadInput, "InvalidResult", ...) naming the path.
RunResult read_json_result(std::string_view text, const std::string& source,
                           std::set<std::string>* absent = nullptr);
// Lines that follow each other with equal run_id and of the same case of a sweep make one result.
std::vector<RunResult> read_jsonl_results(std::string_view text, const std::string& source,
                                          std::set<std::string>* absent = nullptr);

// ResultFile holds what --json or --jsonl wrote; the first line tells which.
struct ResultFile {
  std::string name;                // as it was given
  std::vector<RunResult> results;  // at least one case among them
  // Members that the file lacks, at least in places: below the case "lossless.top2_margin", of the
  // run "context.load".
  std::set<std::string> absent = {};
};
inline constexpr std::int64_t kMaxResultBytes = std::int64_t{1} << 30;
// Throws as InputFile (core/file.h) and as the readers above; no case is InvalidResult too.
ResultFile read_result_file(const std::filesystem::path& path);

// JSON Schemas (draft 2020-12) of the document and of a line.
std::string result_schema();
std::string result_line_schema();

// It returns whether an option, named as in a result's params, decides the tokens of a case, so
// that its value tells cases apart.
using DecidesTokens = std::function<bool(std::string_view param, const CaseResult& c)>;

// It returns whether an option of a case has the value that it has in a run without options.
using IsDefault = std::function<bool(const Param& param, const CaseResult& c)>;

// ---- For other programs
enum class ExportFormat : std::uint8_t {
  kBencher,        // Bencher Metric Format
  kGithubSmaller,  // github-action-benchmark, customSmallerIsBetter: times and memory
  kGithubBigger,   // the same, customBiggerIsBetter: rates and speedups
  kCsv,
  kLatex,  // a table for the package booktabs
  kMarkdown,
  kJunit,
  kSpeculationProfile,  // NVIDIA's speculation_profile.json
  kVllmAcceptance,      // vLLM's per-request acceptance
  kVllmBench,           // vLLM's bench serve
  kGoldenLengths,       // InferenceX's golden acceptance lengths, YAML
  kSchedule,            // tokens worth drafting, by batch and context
  kVllmSchedule,        // the same for vLLM's dynamic speculative decoding
};

// ---- For people
struct TableStyle {
  std::size_t width = 100;  // columns, at least 80; tables of details may be 100 wide
  bool details = true;      // all tables, else the one of times alone
  bool colour = false;      // for a terminal
};
// The text says what was run, then has the tables and what speaks against the figures. Its last
// sentence says what came out.
std::string to_table(const RunResult& result, const TableStyle& style = {});
// Writes the text of to_table() as GitHub markdown.
std::string to_markdown(const RunResult& result, bool details = true);

}  // namespace triforce
