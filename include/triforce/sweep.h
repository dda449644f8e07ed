// The result of a sweep: one row a case, each with the result of its run.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/report.h"

namespace triforce {

inline constexpr std::string_view kSweepSchema = "triforce-bench.sweep/1";

// What was published for a case of the paper's size, or measured of one here.
struct PublishedPoint {
  std::string method, setting, source;
  std::optional<double> ms_per_token, speedup, alpha, recovery, copied;
};
template <class V>
void fields(V& v, PublishedPoint& p) {
  v("method", p.method, "name of the method here");
  v("setting", p.setting, "options that differ among the experiment's cases, at the paper's size");
  v("ms_per_token", p.ms_per_token, "milliseconds per token; null: not published");
  v("speedup", p.speedup, "over autoregressive decoding; null: not published");
  v("alpha", p.alpha, "per-token acceptance of the outer level; null: not published");
  v("recovery", p.recovery, "attention recovered, mean over the layers; null: not published");
  v("copied", p.copied, "accuracy of needle retrieval; null: not published");
  v("source", p.source, "where it was published, and on what");
}

struct SweepRecipe {
  std::string name, title, source;
  std::string about;
  std::vector<std::string> cannot;
  std::vector<PublishedPoint> published;
};
template <class V>
void fields(V& v, SweepRecipe& r) {
  v("name", r.name, "size and name, or file");
  v("title", r.title, "which experiment it is");
  v("source", r.source, "of the experiment");
  v("about", r.about, "what to look at");
  v("cannot", r.cannot, "published points that cannot run here, and why");
  v("published", r.published, "of its cases at the paper's size");
}

struct SweepRow {
  std::int64_t number = 0;
  std::optional<std::string> recipe;
  std::vector<Param> options;
  RunResult result;
};
template <class V>
void fields(V& v, SweepRow& r) {
  v("case", r.number, "number of the case, from 1");
  v("recipe", r.recipe, "name of its experiment; null: options of the command line alone");
  v("options", r.options, "the options that tell the cases apart");
  v("result", r.result, "what `run` with the case's options would have written");
}

struct SweepResult {
  std::vector<SweepRecipe> recipes;
  std::vector<SweepRow> rows;
};
template <class V>
void fields(V& v, SweepResult& s) {
  v.constant("schema", kSweepSchema, "format of this document");
  v("recipes", s.recipes, "the experiments that its cases are of");
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
