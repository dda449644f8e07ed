#include "triforce/compare.h"

#include <algorithm>
#include <map>

#include "compare/metrics.h"
#include "report/printers.h"

namespace triforce {
namespace {

void add_once(std::vector<std::string>& list, std::string text) {
  if (std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
}

ComparedFile describe(const ResultFile& file) {
  ComparedFile f;
  f.file = file.name;
  for (const RunResult& run : file.results) {
    const ResultContext& c = run.context;
    f.run_ids.push_back(run.run_id);
    add_once(f.commits, c.commit.value_or("unknown") + (c.dirty == true ? "+" : ""));
    add_once(f.machines, fmt::format("{}, {}", c.gpu_name.value_or(c.cpu_model), c.backend));
  }
  return f;
}

MetricComparison not_comparable(const std::string& problem) {
  MetricComparison m;
  m.metric = "case";
  m.decide(Verdict::kMissing, Outcome::kInconclusive, problem);
  return m;
}

// Says what cannot be told without a member of a result (ResultFile::absent). It is empty if
// nothing that is compared depends on it.
std::string_view limit_without(const std::string& member, const CompareOptions& options) {
  if (member == "lossless.equal_to_baseline") return "losslessness cannot be told from it";
  if (member.starts_with("model.") || member == "data.sha256" || member == "context.sm") {
    return "its cases may be others and cannot be told to be the same";
  }
  if (options.exact && is_exact_member(member)) return "not among the counters that are compared";
  if (!options.no_latency && (member == "context.gpu_name" || member == "context.communication")) {
    return "its times cannot be told to be of the same machine";
  }
  return {};
}

// Adds the notes on members that a file of an older build lacks.
void note_absent(std::string_view side, const ResultFile& file, const CompareOptions& options,
                 std::vector<std::string>& notes) {
  std::map<std::string_view, std::vector<std::string>> members;
  for (const std::string& member : file.absent) {
    const std::string_view limit = limit_without(member, options);
    if (!limit.empty()) members[limit].push_back(member);
  }
  for (const auto& [limit, names] : members) {
    notes.push_back(
        fmt::format("{} lacks {} (of an older build?): {}", side, fmt::join(names, ", "), limit));
  }
}

std::size_t count(const Comparison& c, Outcome outcome) {
  std::size_t n = 0;
  for (const CaseComparison& one : c.cases) {
    n += static_cast<std::size_t>(std::ranges::count_if(
        one.metrics, [&](const MetricComparison& m) { return m.outcome == outcome; }));
  }
  return n;
}

// "triforce 6.5% slower (95% CI 4.1%-8.0%)"
std::string in_words(const CaseComparison& c, const MetricComparison& m) {
  if (m.metric == "ms_per_token" && m.verdict == Verdict::kSlower) {
    return fmt::format(
        "{} {} slower (95% CI {})", c.label, percent_over(*m.change),
        interval_text(percent_over(m.interval->low), percent_over(m.interval->high)));
  }
  if (m.verdict == Verdict::kLower) {
    return fmt::format("{}: {} {:.4f} lower (90% CI {}, each end with 95%)", c.label, m.metric,
                       -*m.change,
                       interval_text(fmt::format("{:.4f}", -m.interval->high),
                                     fmt::format("{:.4f}", -m.interval->low)));
  }
  return fmt::format("{}: {} {}: {}", c.label, m.metric, to_string(m.verdict), m.reason);
}

// The first of those with this outcome, in words.
std::string list_of(const Comparison& c, Outcome outcome) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> words;
  for (const CaseComparison& one : c.cases) {
    for (const MetricComparison& m : one.metrics) {
      if (m.outcome == outcome && words.size() < kShown) words.push_back(in_words(one, m));
    }
  }
  const std::size_t more = count(c, outcome) - words.size();
  return fmt::format("{}{}", fmt::join(words, "; "),
                     more > 0 ? fmt::format("; and {} more", more) : "");
}

// Why the times of these cases cannot be told, in words: reasons once where all have the same.
std::string undecided_text(
    const std::vector<std::pair<std::string_view, std::string_view>>& reasons) {
  const bool same = std::ranges::all_of(
      reasons, [&](const auto& r) { return r.second == reasons.front().second; });
  std::string text = fmt::format("{}{}", same ? "" : fmt::format("{}: ", reasons.front().first),
                                 reasons.front().second);
  if (!same) text += fmt::format("; and {} more", reasons.size() - 1);
  return text;
}

std::string verdict_of(const Comparison& c) {
  if (c.exit_code == ExitCode::kRegression) {
    const std::size_t open = count(c, Outcome::kInconclusive);
    return fmt::format("REGRESSION: {}.{}", list_of(c, Outcome::kRegressed),
                       open > 0 ? fmt::format(" Besides, {} of what was compared cannot be "
                                              "decided.",
                                              open)
                                : "");
  }
  if (c.exit_code == ExitCode::kInconclusive) {
    return fmt::format("INCONCLUSIVE: {}.", list_of(c, Outcome::kInconclusive));
  }
  std::vector<std::pair<std::string_view, std::string_view>> open;
  for (const CaseComparison& one : c.cases) {
    for (const MetricComparison& m : one.metrics) {
      if (m.metric != "ms_per_token" || m.outcome != Outcome::kNotGated) continue;
      open.emplace_back(one.label, m.reason);
    }
  }
  const std::size_t n = c.cases.size(), undecided = open.size();
  const auto cases = [](std::size_t k) { return fmt::format("{} case{}", k, k == 1 ? "" : "s"); };
  std::string what =
      c.options.exact ? "tokens and counters equal"
                      : fmt::format("no acceptance lower by {:g}", c.options.acceptance_threshold);
  if (undecided < n && !c.options.no_latency) {
    what += fmt::format(", {}no time per token {:.3g}% longer",
                        undecided == 0 ? "" : fmt::format("in {} ", n - undecided),
                        100 * (c.options.latency_threshold - 1));
  }
  std::string text = fmt::format("No regression in {}: {}.", cases(n), what);
  if (undecided > 0) {
    text += fmt::format(" LATENCY UNDECIDED in {}: {}.", cases(undecided), undecided_text(open));
  }
  return text;
}

}  // namespace

Comparison compare_results(const ResultFile& base, const ResultFile& other,
                           const CompareOptions& options, const CaseRules& rules) {
  Comparison out;
  out.options = options;
  out.base = describe(base);
  out.other = describe(other);
  const std::vector<MatchedCase> matched = match_cases(base, other, options.runs, rules, out.notes);
  note_absent("base", base, options, out.notes);
  note_absent("new", other, options, out.notes);
  std::set<std::string> absent = base.absent;
  absent.insert(other.absent.begin(), other.absent.end());
  std::vector<LatencySamples> latencies, energies;
  std::vector<std::size_t> timed, metered;  // whose cases they are of
  for (const MatchedCase& m : matched) {
    CaseComparison& c = out.cases.emplace_back(CaseComparison{m.case_id, m.label, m.method, {}});
    if (!m.problem.empty()) {
      c.metrics.push_back(not_comparable(m.problem));
      continue;
    }
    const auto add = [&](std::vector<MetricComparison> rows) {
      std::move(rows.begin(), rows.end(), std::back_inserter(c.metrics));
    };
    add(compare_lossless(m));
    add(compare_exactly(m, options.exact, absent));
    if (!options.exact) add(compare_acceptance(m, options.acceptance_threshold));
    if (options.no_latency) continue;
    latencies.push_back(latency_samples(m));
    timed.push_back(out.cases.size() - 1);
    if (std::optional<LatencySamples> energy = energy_samples(m)) {
      energies.push_back(std::move(*energy));
      metered.push_back(out.cases.size() - 1);
    }
  }
  const auto add_rows = [&](std::vector<MetricComparison> rows,
                            const std::vector<std::size_t>& of) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      out.cases[of[i]].metrics.push_back(std::move(rows[i]));
    }
  };
  add_rows(compare_latency(latencies, options), timed);
  add_rows(compare_energy(energies, options), metered);
  if (count(out, Outcome::kInconclusive) > 0) out.exit_code = ExitCode::kInconclusive;
  if (count(out, Outcome::kRegressed) > 0) out.exit_code = ExitCode::kRegression;
  out.verdict = printable(verdict_of(out));
  return out;
}

}  // namespace triforce
