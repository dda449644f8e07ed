#include "options/directions.h"

#include <algorithm>

#include "core/utf8.h"

namespace triforce {
namespace {

constexpr std::string_view kMethod = "method";
// Words in place of a value: one of those that there are.
constexpr std::string_view kFirst = "first", kMiddle = "middle", kLast = "last";

bool is_place(std::string_view text) { return text == kFirst || text == kMiddle || text == kLast; }

// A method of a case.
struct Candidate {
  std::size_t point;
  Method method;
  const RunConfig* config;
};

// The cases that one of a recipe's sizes has; those whose options do not go together left out.
class Cases {
 public:
  explicit Cases(const std::vector<AxisPoint>& points) {
    for (const AxisPoint& p : points) {
      std::optional<RunConfig>& config = configs_.emplace_back();
      error_of(ExitCode::kUsage, [&] { config = make_config(kSweep, p.given); });
    }
  }
  Cases(const Cases&) = delete;
  Cases& operator=(const Cases&) = delete;

  // Whether the option tells cases from each other.
  bool differ_in(const Option& o) const {
    if (o.name == kMethod) return true;
    std::vector<ParamValue> values;
    for (const auto& config : configs_) {
      if (config) values.push_back(o.value.get(*config));
    }
    return std::ranges::any_of(values, [&](const ParamValue& v) { return v != values.front(); });
  }
  std::vector<Candidate> all() const {
    std::vector<Candidate> found;
    for (std::size_t i = 0; i < configs_.size(); ++i) {
      if (!configs_[i]) continue;
      for (const Method m : configs_[i]->methods) found.push_back({i, m, &*configs_[i]});
    }
    return found;
  }

 private:
  std::vector<std::optional<RunConfig>> configs_;
};

// Options of `side` in the order of the table, method excepted.
std::vector<std::pair<const Option*, const Given*>> options_in(const GivenOptions& side) {
  std::vector<std::pair<const Option*, const Given*>> found;
  for (const Option& o : option_table()) {
    const auto it = side.find(o.name);
    if ((o.commands & kSweep) == 0 || it == side.end() || o.name == kMethod) continue;
    found.emplace_back(&o, &it->second);
  }
  return found;
}

// Keeps the side's method. If it names none, the one that is no baseline stays.
void keep_method(const GivenOptions& side, std::vector<Candidate>& candidates) {
  const auto it = side.find(kMethod);
  std::erase_if(candidates, [&](const Candidate& c) {
    return it == side.end() ? c.method == kBaselineMethod
                            : it->second.value != std::string_view(to_string(c.method));
  });
}

void keep_value(const Option& o, const Given& given, std::vector<Candidate>& candidates) {
  RunConfig scratch;
  if (!o.value.set(scratch, given.value)) {
    throw_usage("{}{}: expected {}, or first, middle or last, found {}", given.where, o.name,
                o.value.expected, quote_text(given.value));
  }
  const ParamValue wanted = o.value.get(scratch);
  std::erase_if(candidates, [&](const Candidate& c) { return o.value.get(*c.config) != wanted; });
}

void keep_place(const Option& o, std::string_view place, std::vector<Candidate>& candidates) {
  std::vector<ParamValue> values;
  for (const Candidate& c : candidates) {
    ParamValue value = o.value.get(*c.config);
    if (std::ranges::find(values, value) == values.end()) {
      values.push_back(std::move(value));
    }
  }
  if (values.empty()) return;
  const std::size_t i = place == kFirst  ? 0
                        : place == kLast ? values.size() - 1
                                         : (values.size() - 1) / 2;
  std::erase_if(candidates,
                [&](const Candidate& c) { return o.value.get(*c.config) != values[i]; });
}

std::string text_of(const GivenOptions& side) {
  std::string text;
  for (const auto& [name, given] : side) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, given.value);
  }
  return text;
}

// Returns the cases that `side` leaves.
std::vector<Candidate> candidates_of(const GivenOptions& side, const Cases& cases) {
  std::vector<Candidate> candidates = cases.all();
  keep_method(side, candidates);
  const auto options = options_in(side);
  for (const auto& [o, given] : options) {
    if (!is_place(given->value)) keep_value(*o, *given, candidates);
  }
  for (const auto& [o, given] : options) {
    if (is_place(given->value)) keep_place(*o, given->value, candidates);
  }
  return candidates;
}

void check_side(const RecipeDirection& d, const GivenOptions& side, const Cases& own) {
  if (const auto it = side.find(kMethod); it != side.end() && !parse_method(it->second.value)) {
    throw_usage("{}method: expected one of {}, found {}", it->second.where, method_names(),
                quote_text(it->second.value));
  }
  const std::size_t n = candidates_of(side, own).size();
  if (n == 1) return;
  throw_usage("{}expected options of one case, found {} with {}", d.where,
              n == 0 ? "none" : fmt::format("{}", n), side.empty() ? "any" : text_of(side));
}

// Leaves out the options in which the cases of this size do not differ. Cases of another size may
// differ in them, and a sweep may change what does not tell cases apart.
GivenOptions telling(GivenOptions side, const Cases& own) {
  const GivenOptions all = side;
  for (const auto& [o, given] : options_in(all)) {
    if (!own.differ_in(*o)) side.erase(std::string(o->name));
  }
  return side;
}

DirectionSide choose_side(const GivenOptions& side, const Cases& cases,
                          const std::vector<AxisPoint>& points,
                          std::optional<std::string>& reason) {
  const std::vector<Candidate> found = candidates_of(side, cases);
  DirectionSide chosen;
  chosen.options = text_of(side);
  if (found.size() != 1) {
    if (!reason) {
      reason =
          fmt::format("{} case has {}", found.empty() ? "no" : "more than one", chosen.options);
    }
    return chosen;
  }
  chosen.number = static_cast<std::int64_t>(found.front().point) + 1;
  chosen.method = to_string(found.front().method);
  std::string axes;
  for (const auto& [name, value] : points[found.front().point].axes) {
    axes += fmt::format("{}{} {}", axes.empty() ? "" : ", ", name, value);
  }
  if (!axes.empty()) chosen.options = axes;
  return chosen;
}

bool is_one(const DirectionSide& a, const DirectionSide& b) {
  return a.number && a.number == b.number && a.method == b.method;
}

}  // namespace

std::vector<SweepDirection> choose_directions(const std::vector<RecipeDirection>& directions,
                                              const std::string& size,
                                              const std::vector<AxisPoint>& own,
                                              const std::vector<AxisPoint>& points) {
  const Cases of_recipe(own), cases(points);
  std::vector<SweepDirection> chosen;
  for (const RecipeDirection& d : directions) {
    if (!is_of(d.sizes, size)) continue;
    check_side(d, d.side, of_recipe);
    check_side(d, d.than, of_recipe);
    std::optional<std::string> unused;
    if (is_one(choose_side(d.side, of_recipe, own, unused),
               choose_side(d.than, of_recipe, own, unused))) {
      throw_usage("{}expected two cases, found one: {}", d.where, text_of(d.side));
    }
    SweepDirection& c = chosen.emplace_back();
    c.text = d.text;
    c.metric = d.metric;
    c.relation = d.relation;
    c.threshold = d.threshold;
    c.side = choose_side(telling(d.side, of_recipe), cases, points, c.reason);
    c.than = choose_side(telling(d.than, of_recipe), cases, points, c.reason);
    if (!is_one(c.side, c.than)) continue;
    c.reason = "both sides are one case with these options";
    c.than.number.reset();
  }
  return chosen;
}

}  // namespace triforce
