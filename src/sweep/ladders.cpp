// Tests: tests/sweep/ladders_test.cpp
#include "sweep/ladders.h"

#include <algorithm>
#include <cmath>

#include "report/cells.h"
#include "report/printers.h"

namespace triforce {
namespace {

// Options by which cases differ in their contexts.
bool is_axis(const Param& p) { return p.first == "prefill" || p.first == "turn"; }

struct Rung {
  std::int64_t tokens = 0;
  const CaseResult* of = nullptr;
};

// A ladder and its cases, which are the rows'.
struct Climb {
  SweepLadder ladder;
  std::vector<Rung> rungs;  // rising
};

// "budget 512, triforce"
std::string name_of(const SweepLadder& ladder) {
  const std::string options = options_text(ladder.options);
  return printable(options.empty() ? ladder.method : options + ", " + ladder.method);
}

// A rung's speedup, as crossings are looked for: all are logarithms.
struct Point {
  double tokens = 0, speedup = 0;
  std::optional<double> low, high;
};

std::vector<Point> points_of(const std::vector<Rung>& rungs) {
  std::vector<Point> points;
  for (const Rung& rung : rungs) {
    if (!rung.of->speedup || !rung.of->speedup->value) continue;
    const Speedup& s = *rung.of->speedup;
    Point& p = points.emplace_back();
    p.tokens = std::log(static_cast<double>(rung.tokens));
    p.speedup = std::log(*s.value);
    if (s.ci95_low && s.ci95_high) {
      p.low = std::log(*s.ci95_low);
      p.high = std::log(*s.ci95_high);
    }
  }
  return points;
}

bool pays(const Point& p) { return p.speedup >= 0; }

// Where a line from (x0, y0) to (x1, y1), which crosses 0, does so.
double zero_between(double x0, double y0, double x1, double y1) {
  return x0 + (x1 - x0) * y0 / (y0 - y1);
}

// From the crossing between rungs `at` and at - step on, away from it in steps of `step`: where the
// interval excludes 1 again, on either side. nullopt: nowhere.
std::optional<double> decided_from(const std::vector<Point>& points, std::ptrdiff_t at,
                                   std::ptrdiff_t step) {
  const auto point = [&](std::ptrdiff_t i) -> const Point& {
    return points[static_cast<std::size_t>(i)];
  };
  for (std::ptrdiff_t i = at; i >= 0 && i < std::ssize(points); i += step) {
    const Point &here = point(i), &before = point(i - step);
    if (!here.low || !here.high || !before.low || !before.high) return std::nullopt;
    if (*here.low > 0) return zero_between(before.tokens, *before.low, here.tokens, *here.low);
    if (*here.high < 0) return zero_between(before.tokens, *before.high, here.tokens, *here.high);
  }
  return std::nullopt;
}

std::string tokens_text(double tokens) { return fmt::format("{:.0f}", tokens); }

std::string interval_of(const LadderCrossing& c, const SweepLadder& ladder, bool has_intervals) {
  if (!has_intervals) return "";
  const std::string low = c.low ? tokens_text(*c.low)
                                : fmt::format("below {}", ladder.lengths.front()),
                    high = c.high ? tokens_text(*c.high)
                                  : fmt::format("beyond {}", ladder.lengths.back());
  return c.low && c.high ? fmt::format(" (95% CI {})", interval_text(low, high))
                         : fmt::format(" (95% CI {} to {})", low, high);
}

// "1.32x at 1024 to 1.95x at 15872 tokens"
std::string range_text(const std::vector<Rung>& rungs) {
  const auto measured = [](const Rung& r) { return r.of->speedup && r.of->speedup->value; };
  const auto first = std::ranges::find_if(rungs, measured);
  const auto last = std::find_if(rungs.rbegin(), rungs.rend(), measured);
  return fmt::format("{} at {} to {} at {} tokens", ratio(first->of->speedup->value), first->tokens,
                     ratio(last->of->speedup->value), last->tokens);
}

std::vector<LadderCrossing> crossings_of(const std::vector<Point>& points) {
  std::vector<LadderCrossing> crossings;
  for (std::ptrdiff_t i = 1; i < std::ssize(points); ++i) {
    const Point &a = points[static_cast<std::size_t>(i - 1)],
                &b = points[static_cast<std::size_t>(i)];
    if (pays(a) == pays(b)) continue;
    LadderCrossing c;
    c.pays_from_there = pays(b);
    c.tokens = std::exp(zero_between(a.tokens, a.speedup, b.tokens, b.speedup));
    if (const auto x = decided_from(points, i - 1, -1)) c.low = std::exp(*x);
    if (const auto x = decided_from(points, i, 1)) c.high = std::exp(*x);
    crossings.push_back(c);
  }
  return crossings;
}

void find_crossings(Climb& climb) {
  SweepLadder& ladder = climb.ladder;
  const std::vector<Point> points = points_of(climb.rungs);
  if (points.size() < 2) return;
  const bool has_intervals =
      std::ranges::all_of(points, [](const Point& p) { return p.low && p.high; });
  ladder.crossings = crossings_of(points);
  std::string text = name_of(ladder) + ": ";
  if (ladder.crossings.empty()) {
    text += pays(points.front()) ? "pays at every length" : "pays at no length";
  }
  for (const LadderCrossing& c : ladder.crossings) {
    text += fmt::format("{}{} {} tokens{}", &c != &ladder.crossings.front() ? ", then " : "",
                        c.pays_from_there ? "pays from" : "stops paying at", tokens_text(c.tokens),
                        interval_of(c, ladder, has_intervals));
  }
  ladder.text = fmt::format("{}; {}", text, range_text(climb.rungs));
}

// Of two notes that differ in their numbers alone one is no news.
std::string key_of(const std::string& note) {
  return note.substr(0, note.find_first_of("0123456789", 1));
}

std::vector<std::string> new_notes(const CaseResult& before, const CaseResult& after) {
  std::vector<std::string> notes;
  for (const std::string& note : after.validity.notes) {
    const auto is_known = [&](const std::string& old) { return key_of(old) == key_of(note); };
    if (std::ranges::none_of(before.validity.notes, is_known)) notes.push_back(note);
  }
  return notes;
}

const LevelResult* level_of(const CaseResult& c, const std::string& name) {
  const auto it = std::ranges::find(c.acceptance, name, &LevelResult::name);
  return it == c.acceptance.end() ? nullptr : &*it;
}

// Of its prompts; 0: the result does not say.
std::int64_t tokens_of(const CaseResult& c) {
  if (c.data.mean_tokens) return std::llround(*c.data.mean_tokens);
  const ParamValue* const value = find_param(c.params, "prefill");
  const auto* const tokens = value != nullptr ? std::get_if<std::int64_t>(value) : nullptr;
  return tokens != nullptr ? *tokens : 0;
}

// How much a level's rate varies.
double spread_of(const std::vector<Rung>& rungs, const std::string& name) {
  double most = 0, least = 1;
  for (const Rung& rung : rungs) {
    const LevelResult* const level = level_of(*rung.of, name);
    const double rate = level != nullptr ? level->acceptance_rate() : NAN;
    if (!std::isfinite(rate)) continue;
    most = std::max(most, rate);
    least = std::min(least, rate);
  }
  return most - least;
}

std::optional<LadderStep> step_between(const Rung& before, const Rung& after,
                                       const std::string& level, double spread) {
  const LevelResult *const a = level_of(*before.of, level), *const b = level_of(*after.of, level);
  if (a == nullptr || b == nullptr || !a->ci95 || !b->ci95) return std::nullopt;
  const double fall = a->acceptance_rate() - b->acceptance_rate();
  const bool apart = b->ci95->acceptance_rate.high < a->ci95->acceptance_rate.low;
  if (!(fall >= kAcceptanceStep) || fall < spread / 2 || !apart) return std::nullopt;
  LadderStep s;
  s.level = level;
  s.from_tokens = before.tokens;
  s.to_tokens = after.tokens;
  s.from = a->acceptance_rate();
  s.to = b->acceptance_rate();
  s.causes = new_notes(*before.of, *after.of);
  s.text = fmt::format("{} acceptance falls off a step, from {} at {} to {} at {} tokens", level,
                       rate_with_interval(*a), before.tokens, rate_with_interval(*b), after.tokens);
  for (const std::string& cause : s.causes) s.text += fmt::format("; there {}", cause);
  return s;
}

void find_steps(Climb& climb) {
  const std::vector<Rung>& rungs = climb.rungs;
  for (const LevelResult& level : rungs.front().of->acceptance) {
    const double spread = spread_of(rungs, level.name);
    for (std::size_t i = 1; i < rungs.size(); ++i) {
      if (auto step = step_between(rungs[i - 1], rungs[i], level.name, spread)) {
        step->text.insert(0, name_of(climb.ladder) + ": ");
        climb.ladder.steps.push_back(std::move(*step));
      }
    }
  }
}

}  // namespace

std::vector<SweepLadder> ladders_of(std::span<const SweepRow> rows) {
  std::vector<Climb> climbs;
  for (const SweepRow& row : rows) {
    std::vector<Param> others = row.options;
    if (std::erase_if(others, is_axis) == 0) continue;
    for (const CaseResult& c : row.result.cases) {
      const std::int64_t tokens = tokens_of(c);
      if (c.status != CaseStatus::kOk || tokens <= 0) continue;
      auto climb = std::ranges::find_if(climbs, [&](const Climb& known) {
        const SweepLadder& l = known.ladder;
        return l.recipe == row.recipe && l.method == c.name && l.options == others;
      });
      if (climb == climbs.end()) {
        climb = climbs.insert(climb, Climb{});
        climb->ladder.recipe = row.recipe;
        climb->ladder.method = c.name;
        climb->ladder.options = others;
      }
      climb->rungs.push_back({tokens, &c});
    }
  }
  std::vector<SweepLadder> ladders;
  for (Climb& climb : climbs) {
    std::ranges::stable_sort(climb.rungs, {}, &Rung::tokens);
    if (climb.rungs.front().tokens == climb.rungs.back().tokens) continue;
    for (const Rung& rung : climb.rungs) climb.ladder.lengths.push_back(rung.tokens);
    find_crossings(climb);
    find_steps(climb);
    ladders.push_back(std::move(climb.ladder));
  }
  return ladders;
}

}  // namespace triforce
