#include "app/sweep_cases.h"

#include <algorithm>
#include <map>
#include <optional>

#include "app/progress.h"
#include "app/run_session.h"
#include "app/sweep_estimate.h"
#include "core/sha256.h"
#include "options/settings.h"
#include "report/printers.h"

namespace triforce {
namespace {

using Groups = std::vector<std::vector<std::size_t>>;

// Those of these cases, by their number from 0, together that one session serves.
Groups groups_of(const std::vector<SweepCase>& cases, const std::vector<bool>& wanted) {
  Groups groups;
  std::map<std::string, std::size_t> by_key;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!cases[i].config || !wanted[i]) continue;
    const auto [it, is_new] = by_key.emplace(session_key(*cases[i].config), groups.size());
    if (is_new) groups.emplace_back();
    groups[it->second].push_back(i);
  }
  return groups;
}

std::string name_of(const ChosenRecipe& r) {
  return r.size.empty() || r.name.ends_with(".toml") ? r.name
                                                     : fmt::format("{}-{}", r.size, r.name);
}

// Returns what was published for the recipe's cases at the paper's size, and for what no case is.
std::vector<PublishedPoint> published_of(const ChosenRecipe& recipe) {
  std::vector<PublishedPoint> points;
  const auto is_asked = [&](const std::string& source) {
    return !recipe.published.empty() && source.starts_with(recipe.published);
  };
  for (const AxisPoint& point : recipe.paper_points) {
    const RunConfig config = make_config(kSweep, point.given);
    for (const Method method : config.methods) {
      for (const PublishedResult* r : find_published(published_setting(config), method)) {
        if (!is_asked(r->source)) continue;
        PublishedPoint& p = points.emplace_back();
        p.method = to_string(method);
        p.setting = axes_text(point.axes);
        p.source = fmt::format("{}; {}", r->source, r->machine);
        p.ms_per_token = r->ms_per_token;
        p.speedup = r->speedup;
        p.alpha = r->alpha;
        p.recovery = r->recovery;
        p.copied = r->copied;
        if (r->pass) p.pass = to_string(*r->pass);
        p.pass_ms = r->pass_ms;
      }
    }
  }
  for (const PublishedElsewhere& r : published_elsewhere()) {
    if (!is_asked(r.source)) continue;
    PublishedPoint& p = points.emplace_back();
    p.method = r.method;
    p.setting = r.setting;
    p.source = r.source;
    p.speedup = r.speedup;
    p.tokens_per_round = r.tokens_per_round;
    p.needs = r.needs;
  }
  return points;
}

// `before`: how many of the sweep's cases stand before the recipe's.
std::vector<SweepDirection> directions_of(const ChosenRecipe& recipe, std::int64_t before) {
  std::vector<SweepDirection> directions = recipe.directions;
  for (SweepDirection& d : directions) {
    for (DirectionSide* const side : {&d.side, &d.than}) {
      if (side->number) *side->number += before;
    }
  }
  return directions;
}

}  // namespace

std::string axes_text(const std::vector<std::pair<std::string, std::string>>& axes) {
  std::string text;
  for (const auto& [name, value] : axes) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, cell_text(value));
  }
  return text;
}

std::vector<Param> options_of(const SweepCase& c) {
  std::vector<Param> options;
  for (const auto& [name, value] : c.axes) {
    std::string key(name);
    std::replace(key.begin(), key.end(), '-', '_');
    ParamValue shown = value;
    if (c.config) shown = find_option(kSweep, name)->value.get(*c.config);  // 4096 for 4k
    options.emplace_back(std::move(key), std::move(shown));
  }
  return options;
}

std::string cases_sha256(const std::vector<SweepCase>& cases) {
  std::string text;
  for (const SweepCase& c : cases) {
    for (const auto& [name, value] : c.axes) text += fmt::format("{}={}\n", name, value);
    if (!c.config) continue;
    for (const Option& o : option_table()) {
      if ((o.commands & kRun) == 0 || o.value.get == nullptr || o.role == Role::kOutputs) continue;
      text += fmt::format("{}={}\n", o.name, to_text(o.value.get(*c.config)));
    }
    text += '\n';
  }
  return sha256_hex(text);
}

SliceOfCases slice_of(const std::vector<SweepCase>& cases, const SweepSlice& slice) {
  SliceOfCases mine;
  mine.has.resize(cases.size());
  mine.shares_context.resize(cases.size());
  for (const auto& group : groups_of(cases, std::vector<bool>(cases.size(), true))) {
    for (const std::size_t i : group) mine.shares_context[i] = group.size() > 1;
  }
  // Parts of a sweep share out what one session serves by the lengths of its prompts.
  std::map<std::string, int> turns;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    int turn = 0;  // what is refused is the first part's
    if (const std::optional<RunConfig>& c = cases[i].config) {
      const std::string unit = fmt::format("{}{} {}", session_key(*c), c->prefill, c->turn);
      turn = turns.emplace(unit, static_cast<int>(turns.size())).first->second;
    }
    mine.has[i] = turn % slice.count == slice.index - 1;
  }
  mine.groups = groups_of(cases, mine.has);
  return mine;
}

std::optional<std::string> recipe_of(const CommandLine& line, const SweepCase& c) {
  if (line.recipes.empty()) return std::nullopt;
  return name_of(line.recipes[c.recipe]);
}

std::vector<SweepRecipe> recipes_of(const CommandLine& line) {
  std::vector<SweepRecipe> recipes;
  std::int64_t before = 0;
  for (const ChosenRecipe& r : line.recipes) {
    recipes.push_back({name_of(r), r.title, r.source, r.about, r.cannot, published_of(r), r.columns,
                       directions_of(r, before), r.equal});
    before += std::ssize(r.points);
  }
  return recipes;
}

std::string list_of(const CommandLine& line) {
  const std::vector<SweepCase>& cases = line.cases;
  const SliceOfCases mine = slice_of(cases, line.config.slice);
  const auto& groups = mine.groups;
  std::vector<std::size_t> process_of(cases.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::size_t i : groups[g]) process_of[i] = g + 1;
  }
  TextTable t;
  t.head = {"case", "process"};
  if (!line.recipes.empty()) t.head.emplace_back("recipe");
  const bool for_machines =
      std::ranges::any_of(cases, [](const SweepCase& c) { return !c.machine.empty(); });
  if (for_machines) t.head.emplace_back("meant for");
  t.head.emplace_back("methods");
  t.head.emplace_back("options");
  t.left_columns = t.head.size();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!mine.has[i]) continue;
    const SweepCase& c = cases[i];
    std::vector<std::string> row = {fmt::format("{}", i + 1)};
    row.push_back(c.config ? fmt::format("{}", process_of[i]) : "-");
    if (!line.recipes.empty()) row.push_back(name_of(line.recipes[c.recipe]));
    if (for_machines) row.push_back(c.machine.empty() ? "any" : c.machine);
    const OptionValue& methods = find_option(kSweep, "method")->value;
    row.push_back(c.config ? to_text(methods.get(*c.config)) : "-");
    row.push_back(axes_text(c.axes) + (c.config ? "" : "  refused: " + c.refusal));
    t.rows.push_back(std::move(row));
  }
  return render_text(t, terminal_columns(1).value_or(100)) +
         fmt::format(
             "{} case{} by {} process{}, one after the other; each loads the models and "
             "processes every prompt once, longer ones from where shorter ones end.\n",
             t.rows.size(), t.rows.size() == 1 ? "" : "s", groups.size(),
             groups.size() == 1 ? "" : "es") +
         wrap(estimate_of(line, mine), terminal_columns(1).value_or(100), 0);
}

}  // namespace triforce
