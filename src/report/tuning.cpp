
#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "report/printers.h"

#include "triforce/format.h"

namespace triforce {
namespace {

// Gammas that a table has room for, spread over those of the surface.
constexpr std::size_t kColumns = 10;

std::string setting_text(const TunedSetting& s) {
  std::string text = s.budget ? fmt::format("budget {}, ", *s.budget) : std::string();
  text += s.tree ? fmt::format("a tree of {} tokens in {} levels", s.tree->size(), s.gamma)
                 : fmt::format("gamma {}", s.gamma);
  if (s.inner_gamma) text += fmt::format(", inner gamma {}", *s.inner_gamma);
  return text;
}

// The fastest of the chosen budget's that propose anything.
const TuningPoint* best_speculation(const CaseTuning& t) {
  const TuningPoint* best = nullptr;
  for (const TuningPoint& p : t.surface) {
    if (p.setting.gamma == 0 || p.setting.budget != t.chosen.budget) continue;
    if (best != nullptr && p.ms_per_token >= best->ms_per_token) continue;
    best = &p;
  }
  return best;
}

std::string chosen_text(const CaseResult& c) {
  const CaseTuning& t = *c.tuning;
  std::string text;
  const TuningPoint* const best = best_speculation(t);
  if (t.chosen.gamma == 0 && best != nullptr) {
    text = fmt::format(
        "do not speculate: autoregressive decoding is predicted {:.0f}% faster than the best that "
        "this method does ({})",
        100 * (best->ms_per_token / t.predicted_ms_per_token - 1), setting_text(best->setting));
  } else {
    text = setting_text(t.chosen);
    if (t.chosen.inner_gamma == 0) text += " (without the drafter)";
  }
  text += fmt::format(": {} ms/token predicted", short_number(t.predicted_ms_per_token));
  if (!t.measured_ms_per_token) return text;
  text += fmt::format(", {} measured ({:+.0f}%)", short_number(t.measured_ms_per_token),
                      t.error_pct.value_or(NAN));
  if (!t.speedup_error_pct || !c.speedup || !c.speedup->value) return text;
  return text + fmt::format("; {:.2f}x {} predicted, {:.2f}x measured ({:+.0f}%)",
                            t.predicted_speedup(), c.speedup->baseline, *c.speedup->value,
                            *t.speedup_error_pct);
}

std::string speed_text(double ratio) { return fmt::format("{:.2f}x as fast", ratio); }

std::string defaults_text(const TuningDefaults& d, const CaseTuning& t) {
  const bool measured = d.measured_ms_per_token && d.best_measured_ms_per_token;
  const double ratio = measured ? *d.measured_ms_per_token / *d.best_measured_ms_per_token : NAN;
  if (t.overruled) {
    return fmt::format(
        " These are the defaults: {} is predicted to be faster, but on a tuning prompt it was {}.",
        setting_text(*t.overruled), speed_text(ratio));
  }
  if (d.setting == t.chosen) return " These are the defaults.";
  std::string text = fmt::format(" Against the defaults ({}) {} predicted", setting_text(d.setting),
                                 speed_text(d.predicted_ms_per_token / t.predicted_ms_per_token));
  if (measured) text += fmt::format(", {:.2f}x measured on a tuning prompt", ratio);
  return text + '.';
}

// " It was chosen before retrieval (5.123 ms predicted), draft (7.221)."
std::string methods_text(std::span<const TriedMethod> tried) {
  std::string others;
  for (const TriedMethod& m : tried.subspan(std::min<std::size_t>(1, tried.size()))) {
    others += fmt::format("{}{} ({}{})", others.empty() ? "" : ", ", printable(m.method),
                          short_number(m.ms_per_token), others.empty() ? " ms predicted" : "");
  }
  return others.empty() ? " No other method was tried."
                        : fmt::format(" It was chosen before {}.", others);
}

std::string prompts_text(const CaseTuning& t) {
  if (!t.own_prompts) return "the first measured prompt, as the data set has no more";
  return fmt::format("{} other prompt{}", t.prompts, t.prompts == 1 ? "" : "s");
}

// Tokens asked for per outer verification.
int asked_by(const TunedSetting& s) { return s.tree ? static_cast<int>(s.tree->size()) : s.gamma; }

// Returns at most kColumns of them, the first and the last included.
std::vector<int> columns_of(const RunResult& r) {
  std::set<int> all;
  for (const CaseResult& c : r.cases) {
    if (!c.tuning) continue;
    for (const TuningPoint& p : c.tuning->surface) all.insert(asked_by(p.setting));
  }
  std::vector<int> columns(all.begin(), all.end());
  for (const CaseResult& c : r.cases) {
    if (!c.tuning) continue;
    const int chosen = asked_by(c.tuning->chosen);
    while (columns.size() > kColumns) {
      // The one with the nearest neighbours, those chosen excepted.
      std::size_t drop = 0;
      double least = INFINITY;
      for (std::size_t i = 1; i + 1 < columns.size(); ++i) {
        const double gap = (columns[i + 1] + 1.0) / (columns[i - 1] + 1.0);
        if (columns[i] == chosen || gap >= least) continue;
        least = gap;
        drop = i;
      }
      if (drop == 0) break;
      columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(drop));
    }
  }
  return columns;
}

bool has_trees(const RunResult& r) {
  return std::ranges::any_of(r.cases, [](const CaseResult& c) {
    return c.tuning && std::ranges::any_of(c.tuning->surface, [](const TuningPoint& p) {
             return p.setting.tree.has_value();
           });
  });
}

}  // namespace

std::string tuning_text(const CaseResult& c) {
  if (!c.tuning) return {};
  const CaseTuning& t = *c.tuning;
  std::string text = fmt::format("{}, tuned in {} s on {}: {}.", c.name, short_number(t.seconds),
                                 prompts_text(t), chosen_text(c));
  if (t.methods) text += methods_text(*t.methods);
  if (t.defaults) text += defaults_text(*t.defaults, t);
  if (t.cut_short) text += " Not all budgets were tried: the time for tuning was up.";
  if (!t.too_large.empty()) {
    text += fmt::format(" No memory for budget{} {}.", t.too_large.size() == 1 ? "" : "s",
                        fmt::join(t.too_large, ", "));
  }
  return text;
}

TextTable tuning_table(const RunResult& r) {
  TextTable t;
  const bool trees = has_trees(r);
  t.title = fmt::format("Tuning: predicted ms/token by {}", trees ? "tokens of the tree" : "gamma");
  t.caption = fmt::format(
      "{} inner gamma{}, in brackets; 0: do not speculate; *: chosen; from passes and acceptances "
      "measured on tuning prompts",
      trees ? "the best tree or chain of at most so many, with the chosen" : "at the best",
      trees ? "" : " of each");
  t.head = {"method", "budget"};
  t.left_columns = 1;
  const std::vector<int> columns = columns_of(r);
  for (const int gamma : columns) t.head.push_back(fmt::format("{}", gamma));
  for (const CaseResult& c : r.cases) {
    if (!c.tuning) continue;
    std::vector<std::optional<std::int64_t>> budgets;
    for (const TuningPoint& p : c.tuning->surface) {
      if (budgets.empty() || budgets.back() != p.setting.budget)
        budgets.push_back(p.setting.budget);
    }
    for (const auto& budget : budgets) {
      std::vector<std::string> row(2 + columns.size());
      row[0] = c.name;
      row[1] = budget ? fmt::format("{}", *budget) : "-";
      for (const TuningPoint& p : c.tuning->surface) {
        const auto at = std::ranges::find(columns, asked_by(p.setting));
        if (p.setting.budget != budget || at == columns.end()) continue;
        std::string cell = fmt::format("{:.3g}", p.ms_per_token);
        if (p.setting.gamma > 0 && p.setting.inner_gamma) {
          cell += fmt::format("({})", *p.setting.inner_gamma);
        }
        if (p.setting == c.tuning->chosen) cell.insert(0, 1, '*');
        row[2 + static_cast<std::size_t>(at - columns.begin())] = cell;
      }
      t.rows.push_back(std::move(row));
    }
  }
  return t;
}

}  // namespace triforce
