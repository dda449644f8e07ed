#include <algorithm>
#include <array>
#include <cmath>

#include "compare/metrics.h"
#include "core/fields.h"
#include "report/junit.h"
#include "report/printers.h"
#include "triforce/compare.h"

namespace triforce {
namespace {

bool is_energy(const MetricComparison& m) { return m.metric == "joules_per_token"; }
// Whether its change is a ratio.
bool is_ratio(const MetricComparison& m) { return m.metric == "ms_per_token" || is_energy(m); }
bool is_rate(const MetricComparison& m) { return m.metric.starts_with("acceptance."); }

std::string value_text(const MetricComparison& m, const std::optional<double>& value) {
  if (!value) return "-";
  return is_rate(m) ? fmt::format("{:.4f}", *value) : short_number(value);
}

// A number that rounds to zero gets no sign.
std::string without_sign_of_zero(std::string text) {
  const bool zero = text.find_first_of("123456789") == std::string::npos;
  return zero && text.find_first_of("+-") == 0 ? text.substr(1) : text;
}

std::string change_text(const MetricComparison& m) {
  if (!m.change) return "-";
  return without_sign_of_zero(is_ratio(m) ? fmt::format("{:+.1f}%", 100 * (*m.change - 1))
                                          : fmt::format("{:+.4f}", *m.change));
}

std::string ends_text(const MetricComparison& m) {
  if (!m.interval) return "-";
  const auto text = [&](double end) {
    return without_sign_of_zero(is_ratio(m) ? percent_over(end) : fmt::format("{:.3f}", end));
  };
  return interval_text(text(m.interval->low), text(m.interval->high));
}

// A verdict that needs a reader is in capitals.
std::string verdict_text(const MetricComparison& m) {
  std::string text = to_string(m.verdict);
  if (m.outcome != Outcome::kRegressed) return text;
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string caption_of(const Comparison& c) {
  const CompareOptions& o = c.options;
  std::vector<std::string> parts;
  if (!o.no_latency) {
    parts.push_back(fmt::format(
        "ms_per_token: medians; 95% interval of the change; too much if all of it is over {:+.3g}% "
        "and the ranks agree (p < {:g})",
        100 * (o.latency_threshold - 1), o.latency_alpha));
    const bool energy = std::ranges::any_of(c.cases, [](const CaseComparison& one) {
      return std::ranges::any_of(one.metrics, is_energy);
    });
    if (energy) parts.emplace_back("joules_per_token: the same of the domains that both read");
  }
  if (!o.exact) {
    parts.push_back(fmt::format(
        "acceptance: accepted of tested tokens; 90% interval of the change, so that each end holds "
        "with 95%, as only a fall counts; too little if all of it is under {:+.3g}",
        -o.acceptance_threshold));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

TextTable table_of(const Comparison& c) {
  TextTable t;
  t.caption = caption_of(c);
  t.head = {"case", "metric", "base", "new", "change", "interval", "verdict"};
  t.left_columns = 2;
  t.optional = {"interval", "base", "new"};
  for (const CaseComparison& one : c.cases) {
    for (const MetricComparison& m : one.metrics) {
      t.rows.push_back({one.label, m.metric, value_text(m, m.base), value_text(m, m.other),
                        change_text(m), ends_text(m), verdict_text(m)});
    }
  }
  return t;
}

// Why it is not simply as before: a line for each reason, with the cases that have it.
std::vector<std::string> notes_of(const Comparison& c) {
  NamesByText found;
  for (const CaseComparison& one : c.cases) {
    for (const MetricComparison& m : one.metrics) {
      if (m.outcome == Outcome::kPassed) continue;
      std::string text = fmt::format("{}: {}", m.metric, m.reason);
      if (m.outcome == Outcome::kNotGated) {
        text += is_energy(m)  ? "; energy decides nothing"
                : is_ratio(m) ? "; not required (--require-latency)"
                              : "; not required (--exact)";
      }
      add_name(found, std::move(text), one.label);
    }
  }
  std::vector<std::string> notes;
  for (const auto& [text, cases] : found) notes.push_back(cases + ": " + text);
  for (const std::string& note : c.notes) notes.push_back(note);
  return notes;
}

// "0123456789abcdef...+" as "012345678+".
std::string short_commit(const std::string& commit) {
  constexpr std::size_t kDigits = 9;
  return commit.substr(0, kDigits) + (commit.size() > kDigits && commit.ends_with('+') ? "+" : "");
}

std::vector<std::string> header_of(const Comparison& c) {
  std::vector<std::string> lines;
  for (const auto& [name, file] : {std::pair{"base", &c.base}, std::pair{"new", &c.other}}) {
    std::vector<std::string> commits = file->commits;
    std::transform(commits.begin(), commits.end(), commits.begin(), short_commit);
    lines.push_back(fmt::format("{}: {}, {} run{}, commit {}, {}", name, file->file,
                                file->run_ids.size(), file->run_ids.size() == 1 ? "" : "s",
                                fmt::join(commits, " "), fmt::join(file->machines, "; ")));
  }
  return lines;
}

constexpr const char *kRed = "\x1b[31m", *kYellow = "\x1b[33m", *kGreen = "\x1b[32m",
                     *kBold = "\x1b[1m", *kPlain = "\x1b[0m";

const char* colour_of(const MetricComparison& m) {
  switch (m.outcome) {
    case Outcome::kRegressed:
      return kRed;
    case Outcome::kInconclusive:
    case Outcome::kNotGated:
      return kYellow;
    case Outcome::kPassed:
      break;
  }
  const bool better = m.verdict == Verdict::kFaster || m.verdict == Verdict::kHigher ||
                      m.verdict == Verdict::kLower;  // lower rates have not passed
  return better ? kGreen : "";
}

// A line or several, which end in a newline, in a colour; "": as they are.
std::string coloured(const std::string& code, std::string text, const TableStyle& style) {
  if (!style.colour || code.empty()) return text;
  return text.insert(0, code).insert(text.size() - 1, kPlain);
}

// The rows of the table in the colours of their outcomes.
std::string coloured_table(const Comparison& c, const TableStyle& style) {
  const std::string text = render_text(table_of(c), style.width);
  std::vector<std::string> colours = {"", ""};  // of the head and its rule
  for (const CaseComparison& one : c.cases) {
    for (const MetricComparison& m : one.metrics) colours.emplace_back(colour_of(m));
  }
  std::string out;
  std::size_t begin = 0;
  for (const std::string& colour : colours) {
    const std::size_t end = text.find('\n', begin) + 1;
    out += coloured(colour, text.substr(begin, end - begin), style);
    begin = end;
  }
  return out;
}

// By outcome.
constexpr std::array kJunitOutcomes = {JunitCase::Outcome::kPassed, JunitCase::Outcome::kFailed,
                                       JunitCase::Outcome::kError, JunitCase::Outcome::kSkipped};

}  // namespace

std::string to_json(const Comparison& comparison) { return to_json_text(comparison) + '\n'; }

std::string comparison_schema() {
  return json_schema_text<Comparison>(kComparisonSchema,
                                      "What triforce-bench compare --json writes");
}

std::string to_junit(const Comparison& comparison) {
  std::vector<JunitCase> cases;
  for (const CaseComparison& one : comparison.cases) {
    for (const MetricComparison& m : one.metrics) {
      cases.push_back({one.label, m.metric, kJunitOutcomes.at(static_cast<std::size_t>(m.outcome)),
                       fmt::format("{}: {}", to_string(m.verdict), m.reason), 0});
    }
  }
  return to_junit("triforce-bench compare", cases);
}

std::string to_table(const Comparison& comparison, const TableStyle& style) {
  std::string out;
  for (const std::string& line : header_of(comparison)) out += wrap(line, style.width, 2);
  out += '\n' + coloured_table(comparison, style);
  const std::string caption = table_of(comparison).caption;
  if (!caption.empty()) out += wrap("  " + caption, style.width, 2);
  out += '\n';
  for (const std::string& note : notes_of(comparison)) {
    out += coloured(kYellow, wrap("! " + note, style.width, 2), style);
  }
  const char* code = comparison.exit_code == ExitCode::kOk ? kBold : kRed;
  return out + '\n' + coloured(code, wrap(comparison.verdict, style.width, 2), style);
}

std::string to_markdown(const Comparison& comparison) {
  std::string out = fmt::format("**{}**\n\n", markdown_text(comparison.verdict));
  for (const std::string& line : header_of(comparison)) out += "- " + markdown_text(line) + '\n';
  const TextTable table = table_of(comparison);
  out += '\n' + render_markdown(table) + '\n' + markdown_text(table.caption) + '\n';
  const std::vector<std::string> notes = notes_of(comparison);
  if (!notes.empty()) out += '\n';
  for (const std::string& note : notes) out += "> **Note** " + markdown_text(note) + "\n>\n";
  return out;
}

}  // namespace triforce
