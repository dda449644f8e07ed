// The result of a sweep: one row a case, each with the result of its run.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "triforce/report.h"

namespace triforce {

inline constexpr std::string_view kSweepSchema = "triforce-bench.sweep/1";

struct SweepRow {
  std::int64_t number = 0;
  std::vector<Param> options;
  RunResult result;
};
template <class V>
void fields(V& v, SweepRow& r) {
  v("case", r.number, "number of the case, from 1");
  v("options", r.options, "the options that tell the cases apart");
  v("result", r.result, "what `run` with the case's options would have written");
}

struct SweepResult {
  std::vector<SweepRow> rows;
};
template <class V>
void fields(V& v, SweepResult& s) {
  v.constant("schema", kSweepSchema, "format of this document");
  v("cases", s.rows, "one per combination of options, in their order; failed ones too");
}

// As their namesakes of report.h; a row of CSV or JSONL is that of a case's method.
std::string to_json(const SweepResult& sweep);
std::string to_jsonl(const SweepResult& sweep);
std::string to_csv(const SweepResult& sweep);
// One line a method of each case: its options, time, speedup, acceptance. Then what must be said of
// cases, once for all of whom it is said. With details the tables of each case come before.
std::string to_table(const SweepResult& sweep, const TableStyle& style = {});
std::string to_markdown(const SweepResult& sweep, bool details = true);

// Reads what to_json() wrote. Throws Error(kBadInput, "InvalidResult").
SweepResult read_json_sweep(std::string_view text, const std::string& source);
// The JSON Schema of to_json().
std::string sweep_schema();

}  // namespace triforce
