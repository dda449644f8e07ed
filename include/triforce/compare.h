// Whether results became worse: those of a build before a change (base) and after it (new). Plain
// data with fields() like a result's (report.h), from which JSON and schema follow.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "triforce/case_rules.h"
#include "triforce/error.h"
#include "triforce/report.h"

namespace triforce {

inline constexpr std::string_view kComparisonSchema = "triforce-bench.compare/1";

struct CompareOptions {
  bool exact = false;                  // tokens and counters must be equal
  double acceptance_threshold = 0.01;  // most that an acceptance rate may fall by, in (0, 1)
  double latency_threshold = 1.03;     // largest ratio of times per token, above 1
  double latency_alpha = 1e-4;         // largest p, after Holm's correction, of what is slower
  bool require_latency = false;        // latency that cannot be decided counts
  bool no_latency = false;             // times are left out
  // Times that each file must have each case, whose samples are pooled; 0: new as often as base.
  int runs = 0;
};
void fields(auto& v, CompareOptions& o) {
  v("exact", o.exact, "whether tokens and counters had to be equal");
  v("acceptance_threshold", o.acceptance_threshold, "most that an acceptance rate may fall by");
  v("latency_threshold", o.latency_threshold, "largest ratio of times per token");
  v("latency_alpha", o.latency_alpha, "largest corrected p of what counts as slower");
  v("require_latency", o.require_latency, "whether latency that cannot be decided counts");
  v("no_latency", o.no_latency, "whether times were left out");
  v("runs", o.runs,
    "runs of each case in each file, whose samples are pooled; 0: as many as in base");
}

enum class Verdict : std::uint8_t {
  kSame,  // or no worse than allowed
  kFaster,
  kSlower,
  kHigher,
  kLower,
  kDifferent,
  kAmbiguous,  // cannot be told
  kMissing,    // there is nothing to compare
};
constexpr auto names_of(Verdict /*any*/) {
  return std::array{"same",  "faster",    "slower",    "higher",
                    "lower", "different", "ambiguous", "missing"};
}
// The outcome decides the exit code.
enum class Outcome : std::uint8_t {
  kPassed,
  kRegressed,     // exit code 1
  kInconclusive,  // exit code 8 unless something regressed
  kNotGated,      // nothing: it may be worse, or cannot be told, and was not required
};
constexpr auto names_of(Outcome /*any*/) {
  return std::array{"passed", "regressed", "inconclusive", "not gated"};
}

struct MetricComparison {
  std::string metric;
  Verdict verdict = Verdict::kSame;
  Outcome outcome = Outcome::kPassed;
  std::optional<double> base, other, change;
  std::optional<Interval> interval;
  std::optional<double> p_value, noise, drift, design_effect;
  std::int64_t n_base = 0, n_other = 0;
  std::optional<std::int64_t> n_needed;
  std::string reason;  // may be empty: of what is the same

  void decide(Verdict its_verdict, Outcome its_outcome, std::string its_reason) {
    verdict = its_verdict;
    outcome = its_outcome;
    reason = std::move(its_reason);
  }
};
void fields(auto& v, MetricComparison& m) {
  v("metric", m.metric,
    "case (whether it can be compared), lossless, tokens, counters, acceptance.inner, "
    "acceptance.outer, ms_per_token or joules_per_token (read as ms_per_token below)");
  v("verdict", m.verdict,
    "same (or no worse than allowed), faster, slower, higher, lower, different, ambiguous or "
    "missing");
  v("outcome", m.outcome,
    "passed; regressed: exit code 1; inconclusive: exit code 8; not gated: nothing follows");
  v("base", m.base,
    "before: a rate, or the median ms per token, each sample less the level of its group and all "
    "at the geometric mean of these levels; with several runs a side such that new / base is the "
    "change, about the geometric mean of both medians");
  v("new", m.other, "after");
  v("change", m.change,
    "ms_per_token: ratio, new over base, of the medians; with several runs a side "
    "Hodges and Lehmann's estimate from the runs' medians; "
    "acceptance: difference of the rates, new less base");
  v("interval", m.interval,
    "of change; ms_per_token: 95%, a bootstrap, with several runs a side that of the rank test of "
    "the runs; acceptance: 90%, so that each end holds with 95%");
  v("p_value", m.p_value,
    "ms_per_token: probability of so high a rank sum if nothing changed (stratified "
    "Mann-Whitney; of the runs' medians where there are several a side), after Holm's correction "
    "over the cases");
  v("noise", m.noise, "ms_per_token: spread within groups of equal work, robust, as a fraction");
  v("drift", m.drift,
    "ms_per_token: standard deviation of the medians of runs of one build, as a fraction; null: "
    "one run a side");
  v("design_effect", m.design_effect,
    "acceptance: variance of the difference over that of independent tokens");
  v("n_base", m.n_base,
    "before: timed samples; acceptance: tokens tested, repeated generations counted once; tokens "
    "and counters: generations");
  v("n_new", m.n_other, "after");
  v("n_needed", m.n_needed, "so many on each side are needed to decide");
  v("reason", m.reason, "why, one line; empty where there is nothing to add");
}

struct CaseComparison {
  std::string case_id, label, method;
  std::vector<MetricComparison> metrics;
};
void fields(auto& v, CaseComparison& c) {
  v("case_id", c.case_id, "as in both results");
  v("label", c.label, "name of the case, with the beginning of case_id where names repeat");
  v("method", c.method, "as in the result");
  v("metrics", c.metrics, "what was compared");
}

// ComparedFile is one of the two files.
struct ComparedFile {
  std::string file;
  std::vector<std::string> run_ids, commits, machines;
};
void fields(auto& v, ComparedFile& f) {
  v("file", f.file, "as given");
  v("run_ids", f.run_ids, "of its runs");
  v("commits", f.commits, "that built the programs, each once; \"+\" at the end: with changes");
  v("machines", f.machines, "processor or GPU, and backend, each once");
}

struct Comparison {
  ExitCode exit_code = ExitCode::kOk;
  std::string verdict;
  CompareOptions options;
  ComparedFile base, other;
  std::vector<CaseComparison> cases;
  std::vector<std::string> notes;
};
void fields(auto& v, Comparison& c) {
  v.constant("schema", kComparisonSchema, "format of this document");
  v("exit_code", c.exit_code, "0: no regression, 1: regression, 8: cannot be decided");
  v("verdict", c.verdict, "what came out, in words");
  v("options", c.options, "what was asked for");
  v("base", c.base, "before");
  v("new", c.other, "after");
  v("cases", c.cases, "those of base, in its order");
  v("notes", c.notes, "what was left out, one line each");
}

// Compares case by case those with equal case_id. An option that one file's build did not have is
// no part of that where the other file has its default: such cases are compared, too. What cannot
// be compared is `missing` and inconclusive, never passed: a case that new lacks, that is there
// another number of times than options.runs says, was not finished or is not ok. Copies of a run
// (run_id, or samples[].generated_in) count once. Throws as check_consistent() for a file that
// contradicts itself.
//
// scripts/README.md, "Rules", says what is worse and what cannot be told. Besides:
// - lossless: present where a comparison with the baseline's tokens failed, or was made in base
//   alone.
// - tokens, counters: without options.exact differences of tokens are said and nothing more.
//   Counters that a file lacks (ResultFile::absent) are left out.
// What a file lacks and this needed is a note.
// - acceptance: rate_difference() over the prompts, of a single prompt over its repetitions.
// - ms_per_token: of the same timing_id. Timed samples are independent given what they computed:
//   those of a prompt with equal counters form a group in which neither side should rank higher.
//   mann_whitney() sums over the groups, and median_ratio() takes their levels off, so that neither
//   prompts nor seeds are noise. Where no sample of some work has a partner, groups are prompts.
//   Of cases that are there several times a run is one value, the median of its samples less their
//   groups' levels: what differs from process to process is in none of the above. Runs took turns
//   and are exchangeable if nothing changed. mann_whitney() and hodges_lehmann() of these values
//   decide, so that drift between runs widens the interval instead of forbidding a verdict.
// - joules_per_token: the same statistics, of the domains that both sides read. It is said, and
//   decides nothing.
Comparison compare_results(const ResultFile& base, const ResultFile& other,
                           const CompareOptions& options, const CaseRules& rules);

// ---- Texts; all end in a newline
std::string to_json(const Comparison& comparison);
std::string comparison_schema();
std::string to_junit(const Comparison& comparison);  // a test case per case and metric
std::string to_table(const Comparison& comparison, const TableStyle& style = {});
std::string to_markdown(const Comparison& comparison);

}  // namespace triforce
