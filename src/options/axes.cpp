#include "options/axes.h"

#include <algorithm>
#include <set>

#include "core/parse_number.h"
#include "core/utf8.h"

namespace triforce {
namespace {

struct Range {
  double first = 0, last = 0, step = 1;
  bool multiplies = false, integers = true;
};

std::optional<double> number_of(const Option& option, std::string_view text, bool& integers) {
  if (const auto n = option.value.integer(text)) return static_cast<double>(*n);
  integers = false;
  return parse_real(text);
}

// "1-8", "1k-16k*2", "0.2-1+0.2"; nullopt: no range. A minus sign may be that of an exponent.
std::optional<Range> parse_range(const Option& option, std::string_view text) {
  const std::size_t sign = std::min(text.find_last_of("+*"), text.size());
  for (std::size_t dash = text.find('-'); dash < sign; dash = text.find('-', dash + 1)) {
    Range r;
    const auto first = number_of(option, text.substr(0, dash), r.integers);
    const auto last = number_of(option, text.substr(dash + 1, sign - dash - 1), r.integers);
    std::optional<double> step = 1;
    if (sign < text.size()) step = number_of(option, text.substr(sign + 1), r.integers);
    if (!first || !last || !step || (sign == text.size() && !r.integers)) continue;
    r.multiplies = sign < text.size() && text[sign] == '*';
    r.first = *first;
    r.last = *last;
    r.step = *step;
    return r;
  }
  return std::nullopt;
}

// A text that the option itself understands is no range.
std::optional<Range> range_of(const Option& option, std::string_view item) {
  RunConfig scratch;
  if (option.value.set(scratch, item)) return std::nullopt;
  return parse_range(option, item);
}

}  // namespace

std::string limit_text(std::size_t limit, std::string_view of) {
  return fmt::format("{} {}{}", limit, of, limit == kMaxCases ? " without --yes" : "");
}

std::vector<std::string> expand_values(const Option& option, const Given& given,
                                       std::size_t max_values) {
  if (!option.sweeps()) return {given.value};
  if (given.value.find(',') == std::string::npos && !range_of(option, given.value)) {
    return {given.value};
  }
  const auto fail = [&](const std::string& what) {
    throw_usage("{}--{}: {}", given.where, option.name, what);
  };
  std::vector<std::string> values;
  std::set<std::string, std::less<>> known;
  const auto add = [&](std::string value) {
    RunConfig scratch;
    if (!option.value.set(scratch, value)) {
      fail(fmt::format("expected {}, or a list of such, found {}{}", option.value.expected,
                       quote_text(value), suggest_value(option, value)));
    }
    if (!known.insert(value).second) {
      fail(fmt::format("expected each value once, found {} twice", quote_text(value)));
    }
    if (values.size() == max_values) {
      fail(fmt::format("expected at most {}, found more", limit_text(max_values, "values")));
    }
    values.push_back(std::move(value));
  };
  for (const std::string_view item : split_list(given.value)) {
    const std::optional<Range> r = range_of(option, item);
    if (!r) {
      add(std::string(item));
      continue;
    }
    const bool ends = r->multiplies ? r->step > 1 && r->first > 0 : r->step > 0;
    if (r->first > r->last || !ends) {
      fail(fmt::format(
          "expected a range from a least to a largest value by a positive step or a factor above "
          "1, found {}",
          quote_text(item)));
    }
    // A last value that rounding has moved past the end by less than this is meant.
    constexpr double kSlack = 1e-9;
    double x = r->first;
    for (int i = 1; x <= r->last * (1 + kSlack); ++i) {
      add(r->integers ? fmt::format("{:.0f}", x) : fmt::format("{:.12g}", x));
      x = r->multiplies ? x * r->step : r->first + i * r->step;
    }
  }
  return values;
}

std::vector<AxisPoint> expand_axes(Command command, const GivenOptions& given,
                                   std::size_t max_points) {
  std::vector<AxisPoint> points(1);
  points.front().given = given;
  std::vector<std::pair<const Option*, std::vector<std::string>>> several;
  std::size_t count = 1;
  for (const Option& o : option_table()) {
    const auto it = given.find(o.name);
    if ((o.commands & command) == 0 || it == given.end()) continue;
    std::vector<std::string> values = expand_values(o, it->second, max_points);
    if (values.size() == 1) {
      points.front().given.at(it->first).value = values.front();
      continue;
    }
    count *= values.size();  // below the square of the larger limit
    if (count > max_points) {
      throw_usage("expected at most {}, found {}", limit_text(max_points, "cases"), count);
    }
    several.emplace_back(&o, std::move(values));
  }
  points.front().axes.reserve(several.size());
  for (const auto& [option, values] : several) {
    std::vector<AxisPoint> all;
    all.reserve(points.size() * values.size());
    for (const AxisPoint& p : points) {
      for (const std::string& value : values) {
        AxisPoint& next = all.emplace_back(p);
        next.axes.emplace_back(option->name, value);
        next.given.find(option->name)->second.value = value;
      }
    }
    points = std::move(all);
  }
  return points;
}

}  // namespace triforce
