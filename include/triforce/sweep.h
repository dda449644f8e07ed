// The result of a sweep: one row a case, each with the result of its run.
#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/report.h"

namespace triforce {

inline constexpr std::string_view kSweepSchema = "triforce-bench.sweep/2";

// A CaseMetric is a figure of a case: a column of a sweep's table shows it, and a direction
// compares it.
enum class CaseMetric : std::uint8_t {
  kMsPerToken,
  kSpeedup,
  kAcceptance,
  kInnerAcceptance,
  kAlpha,
  kLength,
  kBound,
  kDivergence,
  kRecovery,
  kCopied,
  kAnswered,
  kAsAr,
  kJoules,
  kSaving,
  kCost,
  kOfBound,
  kPassMs,  // of the first pass of kPassTable; the others' follow
};
// The names are those of scripts/plot_sweep.py where they are axes there too.
constexpr auto names_of(CaseMetric /*any*/) {
  const std::array others = {"ms-per-token", "speedup", "acceptance", "inner-acceptance",
                             "alpha",        "length",  "bound",      "divergence",
                             "recovery",     "copied",  "answered",   "as-ar",
                             "joules",       "saving",  "cost",       "of-bound"};
  std::array<const char*, others.size() + kPassKinds> names{};
  const auto passes = std::ranges::copy(others, names.begin()).out;
  std::ranges::transform(kPassTable, passes, &PassSpec::ms_name);
  return names;
}
// The figure of a case in its unit: times in ms, the others plain numbers; nullopt: not measured.
std::optional<double> metric_of(const CaseResult& c, CaseMetric metric);
// Returns in words what a metric is, for captions.
std::string_view meaning_of(CaseMetric metric);
// Returns whether a metric is a share of something, in [0, 1], whose intervals are of differences.
bool is_rate(CaseMetric metric);
// The level whose acceptance it is; nullopt: it is no acceptance rate.
std::optional<std::string_view> level_of(CaseMetric metric);
// The pass whose time it is; nullopt: it is none.
constexpr std::optional<Pass> pass_of(CaseMetric metric) {
  if (metric < CaseMetric::kPassMs) return std::nullopt;
  return static_cast<Pass>(static_cast<int>(metric) - static_cast<int>(CaseMetric::kPassMs));
}
// Returns whether its unit is ms.
constexpr bool is_time(CaseMetric metric) {
  return metric == CaseMetric::kMsPerToken || pass_of(metric);
}

// A PublishedPoint was published for a case of the paper's size, or for what no case is. It may
// also be measured here.
struct PublishedPoint {
  std::string method, setting, source;
  std::optional<double> ms_per_token, speedup, alpha, tokens_per_round, recovery, copied;
  std::optional<std::string> pass;
  std::optional<double> pass_ms;
  std::optional<std::string> needs;
};
void fields(auto& v, PublishedPoint& p) {
  v("method", p.method, "name of the method here, or there");
  v("setting", p.setting,
    "options that differ among the experiment's cases, at the paper's size, or words");
  v("ms_per_token", p.ms_per_token, "milliseconds per token; null: not published");
  v("speedup", p.speedup, "over autoregressive decoding; null: not published");
  v("alpha", p.alpha, "per-token acceptance of the outer level; null: not published");
  v("pass", p.pass, "name of the pass of pass_ms; null: none");
  v("pass_ms", p.pass_ms, "milliseconds of one such pass; null: not published");
  v("tokens_per_round", p.tokens_per_round, "tokens per verification; null: not published");
  v("needs", p.needs,
    "what it takes that is not here, so that it is to be compared with no case; null: a case at "
    "the paper's size is the same experiment");
  v("recovery", p.recovery, "attention recovered, mean over the layers; null: not published");
  v("copied", p.copied, "accuracy of needle retrieval; null: not published");
  v("source", p.source, "where it was published, and on what");
}

// ---- What the experiment is to show, and whether it does
enum class DirectionRelation : std::uint8_t { kGreater, kLess };
constexpr auto names_of(DirectionRelation /*any*/) { return std::array{"greater", "less"}; }
enum class DirectionVerdict : std::uint8_t { kHolds, kReversed, kUndecided, kNotMeasured };
constexpr auto names_of(DirectionVerdict /*any*/) {
  return std::array{"holds", "reversed", "undecided", "not_measured"};
}

// A direction compares two figures; this is one of them.
struct DirectionSide {
  std::optional<std::int64_t> number;
  std::string method, options;
  std::optional<double> value;
};
void fields(auto& v, DirectionSide& s) {
  v("case", s.number, "number of the case; null: no case has these options");
  v("method", s.method, "its method; empty without a case");
  v("options", s.options, "what tells it from the experiment's other cases");
  v("value", s.value, "the metric there; null: not measured");
}

// "side is greater (less) than `than`", where the two figures are of the same prompts. Rates are
// subtracted, side - than; of times and speedups the ratio side / than is taken.
struct SweepDirection {
  std::string text;
  CaseMetric metric = CaseMetric::kAcceptance;
  DirectionRelation relation = DirectionRelation::kGreater;
  DirectionSide side, than;
  double threshold = 0;
  std::optional<double> effect, ci95_low, ci95_high;
  std::optional<IntervalOver> ci95_over;
  DirectionVerdict verdict = DirectionVerdict::kNotMeasured;
  std::optional<std::string> reason;

  bool is_difference() const { return is_rate(metric); }
};
void fields(auto& v, SweepDirection& d) {
  v("text", d.text, "what the experiment is to show");
  v("metric", d.metric, "figure of both sides");
  v("relation", d.relation, "of side to than");
  v("side", d.side, "the one side");
  v("than", d.than, "the other");
  v("threshold", d.threshold, "what the effect must be above (greater) or below (less)");
  v("effect", d.effect,
    "of acceptance rates side - than, of times and speedups side / than, over the prompts "
    "that both have, each compared with itself; null: not measured");
  v("ci95_low", d.ci95_low,
    "95% confidence interval of effect, lower end: Student's t over the prompts' ratios of "
    "geometric means, or of the jackknife over the prompts' differences");
  v("ci95_high", d.ci95_high, "95% confidence interval of effect, upper end");
  v("ci95_over", d.ci95_over, "as timing.ms_per_token.ci95_over");
  v("verdict", d.verdict,
    "holds: the whole interval is on the side of threshold that relation asks for; reversed: on "
    "the other; undecided: the interval holds the threshold, or there is none");
  v("reason", d.reason, "why it is undecided or not measured; null: the interval says it");
}

// How much of an option cases need for equal values of a metric.
struct EqualView {
  std::string axis;  // in snake_case
  CaseMetric metric = CaseMetric::kAcceptance;
};
void fields(auto& v, EqualView& e) {
  v("axis", e.axis, "option whose values are compared");
  v("metric", e.metric, "figure that is equal then");
}

struct SweepRecipe {
  std::string name, title, source;
  std::string about;
  std::vector<std::string> cannot;
  std::vector<PublishedPoint> published;
  std::vector<CaseMetric> columns = {};
  std::vector<SweepDirection> directions = {};
  std::optional<EqualView> equal = {};
};
void fields(auto& v, SweepRecipe& r) {
  v("name", r.name, "size and name, or file");
  v("title", r.title, "which experiment it is");
  v("source", r.source, "of the experiment");
  v("about", r.about, "what to look at");
  v("cannot", r.cannot, "published points that cannot run here, and why");
  v("published", r.published, "of its cases at the paper's size, and of what no case is");
  v("columns", r.columns, "figures in its table; none: the usual ones");
  v("directions", r.directions, "what its source shows, and whether these cases do");
  v("equal", r.equal,
    "a table of it says how much of an option its cases need for equal figures; null: none does");
}

// ---- The context's length
// Where the speedup crosses 1 between two lengths.
struct LadderCrossing {
  bool pays_from_there = false;
  double tokens = 0;
  std::optional<double> low, high;
};
void fields(auto& v, LadderCrossing& c) {
  v("pays_from_there", c.pays_from_there, "false: it pays up to there");
  v("tokens", c.tokens,
    "of the prompt, where the speedup is 1: between neighbouring lengths, linear in the logarithms "
    "of "
    "both");
  v("low", c.low,
    "from here on the speedup's 95% interval holds 1, by the same interpolation of its ends; null: "
    "below all lengths, or there are no intervals");
  v("high", c.high, "up to here it does; null: beyond all lengths, or there are no intervals");
}

// Between neighbouring lengths a level's acceptance rate falls by kAcceptanceStep or more and by
// half of all that it varies on the ladder, and the 95% intervals do not overlap.
inline constexpr double kAcceptanceStep = 0.1;
struct LadderStep {
  std::string level;
  std::int64_t from_tokens = 0, to_tokens = 0;
  double from = 0, to = 0;
  std::vector<std::string> causes;
  std::string text;
};
void fields(auto& v, LadderStep& s) {
  v("level", s.level, "name of the level");
  v("from_tokens", s.from_tokens, "length of the prompt before the fall");
  v("to_tokens", s.to_tokens, "and after it");
  v("from", s.from, "acceptance rate before");
  v("to", s.to, "and after");
  v("causes", s.causes, "notes that the longer prompts have and the shorter ones have not");
  v("text", s.text, "all of it in words");
}

// One method with one setting at two or more lengths of the prompt.
struct SweepLadder {
  std::optional<std::string> recipe;
  std::string method;
  std::vector<Param> options;
  std::vector<std::int64_t> lengths;
  std::vector<LadderCrossing> crossings;
  std::vector<LadderStep> steps;
  std::optional<std::string> text;
};
void fields(auto& v, SweepLadder& l) {
  v("recipe", l.recipe, "the experiment that its cases are of; null: of none");
  v("method", l.method, "name of its cases");
  v("options", l.options, "options that tell it from other ladders");
  v("lengths", l.lengths, "of the prompts that were measured to their end, tokens, rising");
  v("crossings", l.crossings, "where the method begins or stops to pay, rising");
  v("steps", l.steps, "where acceptance falls off a step");
  v("text", l.text, "from where to where it pays, in words; null: fewer than two speedups");
}

struct SweepRow : SweepPlace {
  std::vector<Param> options;
  RunResult result;
};
void fields(auto& v, SweepRow& r) {
  fields(v, static_cast<SweepPlace&>(r));
  v("options", r.options, "the options that tell the cases apart");
  v("result", r.result, "what `run` with the case's options would have written");
}

struct SweepResult {
  std::vector<SweepRecipe> recipes;
  std::vector<SweepRow> rows;
  std::optional<std::vector<SweepLadder>> ladders;
};
void fields(auto& v, SweepResult& s) {
  v.constant("schema", kSweepSchema, "format of this document");
  v("recipes", s.recipes, "the experiments that its cases are of");
  v("cases", s.rows,
    "one per combination of options, in their order; failed ones too, those of other shards not");
  v("ladders", s.ladders,
    "of cases that differ in the length of the prompt; null: there are none, or an older version");
}

// The result of a case, which says of which one: what lines of CSV and JSONL are made of.
RunResult result_of(SweepRow row);
// These write what their namesakes of report.h do. A row of CSV or JSONL is one method of a case.
std::string to_json(const SweepResult& sweep);
std::string to_jsonl(const SweepResult& sweep);
std::string to_csv(const SweepResult& sweep, const IsColumn& is_column = nullptr);
// The table has one line for each method of each case: its options, time, speedup and acceptance.
// Notes on cases follow; each is written once, for all cases that it is about. With details the
// tables of each case come first.
std::string to_table(const SweepResult& sweep, const TableStyle& style = {});
std::string to_markdown(const SweepResult& sweep, bool details = true);

// Reads what to_json() wrote, as read_json_result(). Throws Error(kBadInput, "InvalidResult").
SweepResult read_json_sweep(std::string_view text, const std::string& source,
                            std::set<std::string>* absent = nullptr);
// The JSON Schema of to_json().
std::string sweep_schema();

// SavedResult holds what --json or --jsonl wrote: a sweep's document, or runs. The first line tells
// which.
struct SavedResult {
  std::optional<SweepResult> sweep;
  std::vector<RunResult> runs;
};
// Throws as read_result_file(), but not for a result without cases.
SavedResult read_saved_result(const std::filesystem::path& path,
                              std::set<std::string>* absent = nullptr);

}  // namespace triforce
