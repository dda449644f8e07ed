#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/fields.h"
#include "report/field_formats.h"
#include "report/junit.h"
#include "report/printers.h"
#include "report/tables.h"

namespace triforce {
namespace {

// A Figure is one figure of a case.
struct Figure {
  std::string slug, name, unit;
  bool smaller_is_better = false;
  double value = 0;
  std::optional<Interval> interval;
};

struct NamedCase {
  const RunResult* run = nullptr;
  const CaseResult* result = nullptr;
  std::string name;
};

// Whether an option is part of the name of a case that has it.
using Names = std::function<bool(const Param& param, const CaseResult& c)>;

// Returns the decisive options whose values differ among the cases. They are for people, who see
// all cases.
Names that_differ(std::span<const RunResult> results, const DecidesTokens& decides) {
  std::map<std::string, std::set<std::string>> values;
  for (const RunResult& run : results) {
    for (const CaseResult& c : run.cases) {
      for (const auto& [name, value] : c.params) {
        if (decides(name, c)) values[name].insert(to_text(value, "none"));
      }
    }
  }
  return [values = std::move(values), &decides](const Param& param, const CaseResult& c) {
    const auto it = values.find(param.first);
    return it != values.end() && it->second.size() > 1 && decides(param.first, c);
  };
}

// Returns the decisive options that are not as in a run without options. The name is then the same
// whatever stands beside the case, and other programs can keep its history under it.
Names that_are_set(const DecidesTokens& decides, const IsDefault& is_default) {
  return [&](const Param& param, const CaseResult& c) {
    return decides(param.first, c) && !is_default(param, c);
  };
}

std::vector<NamedCase> named_cases(std::span<const RunResult> results, const Names& names) {
  std::vector<NamedCase> cases;
  std::map<std::string, int> times;
  for (const RunResult& run : results) {
    for (const CaseResult& c : run.cases) {
      std::string name = c.name;
      for (const Param& param : c.params) {
        if (!names(param, c)) continue;
        name += fmt::format(" {}={}", param.first, to_text(param.second, "none"));
      }
      name = printable(name);
      const int n = ++times[name];
      if (n > 1) name += fmt::format("#{}", n);
      cases.push_back({&run, &c, std::move(name)});
    }
  }
  return cases;
}

std::optional<Interval> interval_of(const std::optional<double>& low,
                                    const std::optional<double>& high) {
  if (!low || !high || !std::isfinite(*low) || !std::isfinite(*high)) return std::nullopt;
  return Interval{*low, *high};
}

std::vector<Figure> figures_of(const CaseResult& c) {
  std::vector<Figure> figures;
  const auto add = [&](std::string slug, std::string name, const char* unit, bool smaller,
                       const std::optional<double>& value, std::optional<Interval> interval) {
    if (!value || !std::isfinite(*value)) return;
    figures.push_back({std::move(slug), std::move(name), unit, smaller, *value, interval});
  };
  const Distribution& d = c.timing.ms_per_token;
  add("ms-per-token", "time per token", "ms", true, d.geometric_mean,
      interval_of(d.ci95_low, d.ci95_high));
  add("tokens-per-second", "tokens per second", "tokens/s", false, c.timing.tokens_per_s, {});
  add("prefill-ms", "prefill", "ms", true, c.timing.fill_ms[kFullPass], {});
  const auto& peak =
      c.memory.peak_device_bytes ? c.memory.peak_device_bytes : c.memory.peak_host_bytes;
  if (peak) add("peak-bytes", "peak memory", "bytes", true, static_cast<double>(*peak), {});
  if (c.speedup) {
    add("speedup", "speedup over " + c.speedup->baseline, "x", false, c.speedup->value,
        interval_of(c.speedup->ci95_low, c.speedup->ci95_high));
  }
  if (c.energy) {
    const Distribution& joules = c.energy->joules_per_token;
    add("joules-per-token", "energy per token", "J", true, joules.geometric_mean,
        interval_of(joules.ci95_low, joules.ci95_high));
  }
  if (c.cost) {
    add("eur-per-million-tokens", "cost of a million tokens", "EUR", true,
        c.cost->eur_per_million_tokens, {});
  }
  for (const LevelResult& level : c.acceptance) {
    const Interval none{NAN, NAN}, rates = level.ci95 ? level.ci95->acceptance_rate : none;
    add("acceptance-" + level.name, "acceptance " + level.name, "rate", false,
        level.acceptance_rate(), interval_of(rates.low, rates.high));
  }
  return figures;
}

// Returns the cases with figures; the others' names go to `left_out`.
std::vector<NamedCase> measured(std::vector<NamedCase> cases, std::vector<std::string>& left_out) {
  std::vector<NamedCase> out;
  for (NamedCase& c : cases) {
    if (c.result->status == CaseStatus::kOk) {
      out.push_back(std::move(c));
    } else {
      left_out.push_back(
          fmt::format("{}: left out, its status is {}{}{}", c.name, to_string(c.result->status),
                      c.result->status_reason ? ": " : "", c.result->status_reason.value_or("")));
    }
  }
  return out;
}

// Of the measured cases those whose outermost level verifies chains; with `baselines` also those
// without a level.
std::vector<DraftedCase> drafted(std::vector<NamedCase> cases, bool baselines,
                                 std::vector<std::string>& left_out) {
  std::vector<DraftedCase> out;
  for (NamedCase& c : measured(std::move(cases), left_out)) {
    const auto& levels = c.result->acceptance;
    if (!levels.empty() && levels.back().acceptance_vector) {
      left_out.push_back(fmt::format("{}: left out, its drafts are trees", c.name));
    } else if (!levels.empty() || baselines) {
      out.push_back({c.run, c.result, std::move(c.name)});
    }
  }
  return out;
}

std::string to_bencher(const std::vector<NamedCase>& cases) {
  JsonWriter out;
  FieldWriter document(out);
  out.begin_object();
  for (const NamedCase& c : cases) {
    document.group(c.name, "", [&](FieldWriter& figures) {
      for (const Figure& f : figures_of(*c.result)) {
        figures.group(f.slug, "", [&](FieldWriter& v) {
          v("value", f.value);
          if (!f.interval) return;
          v("lower_value", f.interval->low);
          v("upper_value", f.interval->high);
        });
      }
    });
  }
  out.end();
  return out.take() + '\n';
}

std::string to_github(const std::vector<NamedCase>& cases, bool smaller_is_better) {
  JsonWriter out;
  FieldWriter v(out);
  out.begin_array(cases.empty());
  for (const NamedCase& c : cases) {
    for (const Figure& f : figures_of(*c.result)) {
      if (f.smaller_is_better != smaller_is_better) continue;
      out.begin_object();
      v("name", fmt::format("{}: {}", c.name, f.name));
      v("unit", f.unit);
      v("value", f.value);
      if (f.interval) {
        v("range", fmt::format("{:.4g} to {:.4g}", f.interval->low, f.interval->high));
      }
      v("extra", fmt::format("case {}, {}", c.result->case_id, c.run->context.backend));
      out.end();
    }
  }
  out.end();
  return out.take() + '\n';
}

// The table of times that a run shows, of all runs.
TextTable table_of(const std::vector<NamedCase>& cases, std::span<const ForeignResult> foreign,
                   AcceptedColumns accepted = AcceptedColumns::kOne) {
  RunResult all;
  std::set<std::string> shown;  // run ids
  for (const NamedCase& c : cases) {
    if (is_shown_elsewhere(*c.result, shown)) continue;
    shown.insert(c.run->run_id);
    all.cases.push_back(*c.result);
    all.cases.back().name = c.name;
  }
  TextTable table = main_table(all, accepted);
  add_foreign_rows(foreign, table);
  return table;
}

std::string junit_of(const std::vector<NamedCase>& cases) {
  std::vector<JunitCase> tests;
  for (const NamedCase& c : cases) {
    JunitCase& t = tests.emplace_back(JunitCase{c.result->method, c.name, {}, {}, 0});
    for (const Sample& s : c.result->timing.samples) t.seconds += s.decode_ms / 1000;
    if (!std::isfinite(t.seconds)) t.seconds = 0;
    if (c.result->status != CaseStatus::kOk) {
      t.outcome = JunitCase::Outcome::kError;
      t.message =
          fmt::format("{}: {}", to_string(c.result->status), c.result->status_reason.value_or(""));
    } else if (c.result->lossless.equal_to_baseline == false) {
      t.outcome = JunitCase::Outcome::kFailed;
      t.message = "tokens differ from the baseline's";
    }
  }
  return to_junit("triforce-bench", tests);
}

}  // namespace

std::string export_results(std::span<const RunResult> results,
                           std::span<const ForeignResult> foreign, ExportFormat format,
                           const DecidesTokens& decides, const IsDefault& is_default,
                           std::vector<std::string>& left_out, const IsColumn& is_column) {
  if (format != ExportFormat::kLatex && format != ExportFormat::kMarkdown) {
    for (const ForeignResult& f : foreign) {
      left_out.push_back(fmt::format(
          "{}: left out, tables alone (latex, markdown) have figures of others", name_of(f)));
    }
  }
  const auto kept = [&] { return named_cases(results, that_are_set(decides, is_default)); };
  const auto shown = [&] { return named_cases(results, that_differ(results, decides)); };
  switch (format) {
    case ExportFormat::kBencher:
      return to_bencher(measured(kept(), left_out));
    case ExportFormat::kGithubSmaller:
      return to_github(measured(kept(), left_out), true);
    case ExportFormat::kGithubBigger:
      return to_github(measured(kept(), left_out), false);
    case ExportFormat::kCsv:
      return to_csv(results, is_column);
    case ExportFormat::kLatex:
      return to_latex(table_of(shown(), foreign, AcceptedColumns::kSeparate));
    case ExportFormat::kMarkdown:
      return render_markdown(table_of(shown(), foreign));
    case ExportFormat::kJunit:
      return junit_of(kept());
    case ExportFormat::kSpeculationProfile:
      return to_speculation_profile(drafted(shown(), false, left_out));
    case ExportFormat::kVllmAcceptance:
      return to_vllm_acceptance(drafted(shown(), false, left_out), left_out);
    case ExportFormat::kVllmBench:
      return to_vllm_bench(drafted(shown(), true, left_out));
    case ExportFormat::kGoldenLengths:
      return to_golden_lengths(drafted(shown(), false, left_out), left_out);
    case ExportFormat::kSchedule:
      return to_schedule(drafted(shown(), false, left_out));
    case ExportFormat::kVllmSchedule:
      return to_vllm_schedule(drafted(shown(), false, left_out));
  }
  TF_CHECK(false, "export format");
}

}  // namespace triforce
