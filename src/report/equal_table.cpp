#include "report/equal_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace triforce {
namespace {

constexpr int kMaxLevels = 6;

struct Line {
  std::vector<std::string> names;                   // the method, and values of the other options
  std::vector<std::pair<double, double>> measured;  // place on the axis, metric; rising places
};

std::optional<double> number_of(const ParamValue* value) {
  if (value == nullptr) return std::nullopt;
  if (const auto* n = std::get_if<std::int64_t>(value)) return static_cast<double>(*n);
  if (const auto* x = std::get_if<double>(value)) return *x;
  return std::nullopt;
}

std::vector<Line> lines_of(const SweepResult& sweep, const SweepRecipe& recipe,
                           const EqualView& view, std::span<const std::string> options) {
  std::vector<Line> lines;
  for (const SweepRow& row : sweep.rows) {
    const std::optional<double> place = number_of(find_param(row.options, view.axis));
    if (row.recipe != recipe.name || !place || *place <= 0) continue;
    for (const CaseResult& c : row.result.cases) {
      const std::optional<double> value = metric_of(c, view.metric);
      if (!value || c.status != CaseStatus::kOk) continue;
      std::vector<std::string> names = {c.name};
      for (const std::string& name : options) {
        const ParamValue* const option = find_param(row.options, name);
        names.push_back(option == nullptr ? "-" : to_text(*option, "-"));
      }
      auto line = std::ranges::find(lines, names, &Line::names);
      if (line == lines.end()) line = lines.insert(line, {std::move(names), {}});
      line->measured.emplace_back(*place, *value);
    }
  }
  for (Line& line : lines) std::ranges::sort(line.measured);
  std::erase_if(lines, [](const Line& line) { return line.measured.size() < 2; });
  return lines;
}

// Round values between the least and the largest that were measured, at most kMaxLevels, and digits
// that tell them apart.
struct Levels {
  std::vector<double> values;
  int digits = 0;
};

Levels levels_of(const std::vector<Line>& lines) {
  double least = INFINITY, most = -INFINITY;
  for (const Line& line : lines) {
    for (const auto& [place, value] : line.measured) {
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  Levels levels;
  if (!(most > least)) return levels;
  constexpr std::array kSteps = {1.0, 2.0, 5.0};
  for (int power = -9; power <= 9; ++power) {
    // A quotient of whole numbers is the double next to what it is written as.
    const double times = std::pow(10.0, std::max(power, 0)),
                 over = std::pow(10.0, std::max(-power, 0));
    for (const double step : kSteps) {
      const auto level = [&](double n) { return n * step * times / over; };
      const double first = std::ceil(least / level(1)), last = std::floor(most / level(1));
      if (last - first >= kMaxLevels) continue;
      for (double n = first; n <= last; ++n) levels.values.push_back(level(n));
      levels.digits = std::max(-power, 0);
      return levels;
    }
  }
  return levels;
}

// Where the line is first as good as the level.
std::string place_of(const Line& line, double level, CaseMetric metric) {
  const auto& points = line.measured;
  const bool less = is_time(metric) || metric == CaseMetric::kDivergence ||
                    metric == CaseMetric::kJoules || metric == CaseMetric::kCost;
  const auto is_as_good = [&](const auto& p) {
    return less ? p.second <= level : p.second >= level;
  };
  const auto after = std::ranges::find_if(points, is_as_good);
  if (after == points.begin()) return fmt::format("<= {:g}", points.front().first);
  if (after == points.end()) return fmt::format("> {:g}", points.back().first);
  const auto before = after - 1;
  const double part = (level - before->second) / (after->second - before->second);
  const double log = std::lerp(std::log(before->first), std::log(after->first), part);
  const double place = std::exp(log);
  return place < 100 ? fmt::format("{:.3g}", place) : fmt::format("{:.0f}", place);
}

}  // namespace

TextTable equal_table(const SweepResult& sweep, const SweepRecipe& recipe) {
  TextTable t;
  if (!recipe.equal) return t;
  const EqualView& view = *recipe.equal;
  std::vector<std::string> options;
  for (const SweepRow& row : sweep.rows) {
    if (row.recipe != recipe.name) continue;
    for (const auto& [name, value] : row.options) {
      const bool known = std::ranges::find(options, name) != options.end();
      if (name != view.axis && !known) options.push_back(name);
    }
  }
  const std::vector<Line> lines = lines_of(sweep, recipe, view, options);
  const Levels levels = levels_of(lines);
  t.title = fmt::format("{}: {} for equal {}", recipe.name, view.axis, to_string(view.metric));
  t.caption = fmt::format(
      "between measured values linear in the logarithm of {}; <=: there at the least one already; "
      ">: at none",
      view.axis);
  t.head = {"method"};
  t.head.insert(t.head.end(), options.begin(), options.end());
  t.left_columns = t.head.size();
  for (const double level : levels.values) {
    t.head.push_back(fmt::format("{:.{}f}", level, levels.digits));
  }
  for (const Line& line : lines) {
    if (levels.values.empty()) break;
    std::vector<std::string> row = line.names;
    for (const double level : levels.values) row.push_back(place_of(line, level, view.metric));
    t.rows.push_back(std::move(row));
  }
  return t;
}

}  // namespace triforce
