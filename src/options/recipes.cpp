// Tests: tests/options/recipe_files_test.cpp, tests/app/recipes_test.cpp
#include "options/recipes.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>

#include "core/utf8.h"
#include "data/data_folder.h"
#include "options/config_file.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".toml", kAll = "all", kMethod = "method";

// Later ones replace earlier ones.
GivenOptions merged(std::initializer_list<const GivenOptions*> layers) {
  GivenOptions all;
  for (const GivenOptions* layer : layers) {
    for (const auto& [name, value] : *layer) all.insert_or_assign(name, value);
  }
  return all;
}

// The options in which the points differ, in the order of the table; an option that a point does
// not have shows as "default".
void name_axes(std::vector<AxisPoint>& points) {
  for (AxisPoint& p : points) p.axes.clear();
  for (const Option& o : option_table()) {
    if ((o.commands & kSweep) == 0 || o.name == kMethod) continue;
    const auto value_of = [&](const AxisPoint& p) {
      const auto it = p.given.find(o.name);
      return it == p.given.end() ? std::string("default") : it->second.value;
    };
    const bool differs = std::ranges::any_of(
        points, [&](const AxisPoint& p) { return value_of(p) != value_of(points.front()); });
    if (!differs) continue;
    for (AxisPoint& p : points) p.axes.emplace_back(o.name, value_of(p));
  }
}

// Returns what a recipe's sections say of the cases of a size. There is one part for each block of
// cases in each section of the size.
std::vector<RecipePart> sections_of(const Recipe& recipe, const std::string& size) {
  static const std::vector<RecipePart> kNone(1);
  const auto it = recipe.sizes.find(size);
  std::vector<RecipePart> sections;
  for (const RecipePart& of_size : it == recipe.sizes.end() ? kNone : it->second) {
    for (const RecipeBlock& block : recipe.blocks) {
      if (!is_of(block.sizes, size)) continue;
      sections.push_back(
          {merged({&recipe.options, &of_size.options, &block.options}), of_size.machine});
    }
  }
  return sections;
}

std::vector<AxisPoint> points_of(const RecipePart& section, std::size_t max_points) {
  std::vector<AxisPoint> points = expand_axes(kSweep, section.options, max_points);
  for (AxisPoint& p : points) p.machine = section.machine;
  return points;
}

using Values = std::vector<ParamValue>;

bool has(const Values& values, const ParamValue& value) {
  return std::ranges::find(values, value) != values.end();
}

void add_once(const Values& more, Values& values) {
  std::copy_if(more.begin(), more.end(), std::back_inserter(values),
               [&](const ParamValue& v) { return !has(values, v); });
}

Values names_in(std::string_view list) {
  Values names;
  for (const std::string_view name : split_list(list)) names.emplace_back(std::string(name));
  return names;
}

// Returns the values of an option that a case has, given or not, as a configuration holds them;
// each method is one. nullopt: the option refuses its value, which the case's row will say.
std::optional<Values> values_of(const Option& option, const GivenOptions& given) {
  const auto it = given.find(option.name);
  if (option.name == kMethod) {
    return names_in(it == given.end() ? to_string(kDefaultMethod) : it->second.value);
  }
  RunConfig config;
  if (it != given.end()) {
    if (!option.value.set(config, it->second.value)) return std::nullopt;
  } else {
    // What is wrong with it a row of the sweep says.
    error_of(ExitCode::kUsage, [&] { config = make_config(kSweep, given); });
  }
  return Values{option.value.get(config)};
}

// Returns the values that the command line asks for of an option.
Values wanted_of(const Option& option, const Given& given, std::size_t max_values) {
  Values wanted;
  for (const std::string& text : expand_values(option, given, max_values)) {
    RunConfig scratch;
    if (!option.value.set(scratch, text)) refuse_value(option, {text, given.where});
    if (option.name == kMethod) return names_in(text);
    wanted.push_back(option.value.get(scratch));
  }
  return wanted;
}

// The cases of one recipe at one size, and what the command line makes of them. It replaces what is
// the same in all sections. Where they differ in an option, they pair its values with others of
// their own: any value in all of them would be other experiments, and some of them twice, so that
// it chooses the cases that have one of its values.
class Points {
 public:
  // `name`: of the recipe, for messages.
  Points(const Recipe& recipe, const std::string& name, const std::string& size,
         std::size_t max_points)
      : name_(name), max_points_(max_points), sections_(sections_of(recipe, size)) {
    for (const RecipePart& s : sections_) of_sections_.push_back(points_of(s, max_points));
  }

  std::vector<AxisPoint> with(const GivenOptions& given) const {
    std::vector<RecipePart> sections = sections_;
    std::vector<const Option*> choosing;
    for (const Option& o : option_table()) {
      const auto it = given.find(o.name);
      if ((o.commands & kSweep) == 0 || it == given.end()) continue;
      if (differ_in(o)) {
        choosing.push_back(&o);
      } else {
        for (RecipePart& s : sections) s.options.insert_or_assign(it->first, it->second);
      }
    }
    std::vector<AxisPoint> points;
    for (const RecipePart& s : sections) {
      for (AxisPoint& p : points_of(s, max_points_)) points.push_back(std::move(p));
    }
    std::string chosen;
    for (const Option* const o : choosing) {
      const Given& from = given.find(o->name)->second;
      keep(*o, wanted(*o, from), points);
      chosen += fmt::format("{}--{} {}", chosen.empty() ? "" : " ", o->name, from.value);
    }
    if (points.empty()) {
      throw_usage("recipe {}: expected options that some of its cases have, found none with {}",
                  quote_text(name_), chosen);
    }
    name_axes(points);
    return points;
  }

 private:
  static Values all_of(const Option& option, const std::vector<AxisPoint>& points) {
    Values all;
    for (const AxisPoint& p : points) add_once(values_of(option, p.given).value_or(Values()), all);
    return all;
  }
  bool differ_in(const Option& option) const {
    const Values first = all_of(option, of_sections_.front());
    return std::ranges::any_of(of_sections_,
                               [&](const auto& points) { return all_of(option, points) != first; });
  }

  // Some of what the recipe's cases have. The baseline, which is measured beside any method,
  // chooses none where no section names it.
  Values wanted(const Option& option, const Given& given) const {
    Values known, wanted = wanted_of(option, given, max_points_);
    for (const auto& points : of_sections_) add_once(all_of(option, points), known);
    const ParamValue baseline = std::string(to_string(kBaselineMethod));
    if (option.name == kMethod && !has(known, baseline) && wanted.size() > 1) {
      std::erase(wanted, baseline);
    }
    for (const ParamValue& v : wanted) {
      if (has(known, v)) continue;
      std::vector<std::string> texts;
      for (const ParamValue& k : known) texts.push_back(to_text(k, "none"));
      throw_usage(
          "{}--{}: expected some of the values that tell cases of the recipe {} apart "
          "({}), found {}",
          given.where, option.name, quote_text(name_), fmt::join(texts, "; "),
          quote_text(to_text(v, "none")));
    }
    return wanted;
  }

  // Keeps those of a list of methods that are wanted.
  static void keep(const Option& option, const Values& wanted, std::vector<AxisPoint>& points) {
    std::erase_if(points, [&](AxisPoint& p) {
      std::optional<Values> found = values_of(option, p.given);
      if (!found) return false;
      Values& values = *found;
      std::erase_if(values, [&](const ParamValue& v) { return !has(wanted, v); });
      if (option.name == kMethod && !values.empty()) {
        std::vector<std::string> names;
        for (const ParamValue& v : values) names.push_back(to_text(v));
        p.given.insert_or_assign(std::string(kMethod),
                                 Given(fmt::format("{}", fmt::join(names, ","))));
      }
      return values.empty();
    });
  }

  std::string name_;
  std::size_t max_points_;
  std::vector<RecipePart> sections_;
  std::vector<std::vector<AxisPoint>> of_sections_;
};

fs::path recipe_folder() { return find_data_folder().root / "experiments"; }

std::vector<std::string> names_of_recipes(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == kSuffix) names.push_back(it->path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

ChosenRecipe choose(const Recipe& recipe, const std::string& name, const std::string& size,
                    const GivenOptions& given, std::size_t max_points) {
  const Points points(recipe, name, size, max_points);
  ChosenRecipe c{recipe, name, size, points.with(given), {}, {}};
  c.directions = choose_directions(recipe.directions, size, points.with({}), c.points);
  if (recipe.sizes.contains("paper")) {
    c.paper_points = Points(recipe, name, "paper", max_points).with({});
  }
  return c;
}

std::string sizes_text(const Recipe& recipe) {
  std::vector<std::string_view> sizes;
  for (const std::string_view size : kRecipeSizes) {
    if (recipe.sizes.contains(size)) sizes.push_back(size);
  }
  return sizes.empty() ? "none" : fmt::format("{}", fmt::join(sizes, ", "));
}

// "my.toml" or "my.toml:tiny".
ChosenRecipe choose_file(const std::string& name, const GivenOptions& given,
                         std::size_t max_points) {
  const std::size_t colon = name.rfind(".toml:");
  const std::string path = name.substr(0, colon == std::string::npos ? colon : colon + 5);
  const std::string size = colon == std::string::npos ? "" : name.substr(colon + 6);
  const Recipe recipe = read_recipe(path);
  const bool has_size = recipe.sizes.contains(size);
  if (has_size || (size.empty() && recipe.sizes.empty())) {
    return choose(recipe, path, size, given, max_points);
  }
  throw_usage("recipe {}: expected a size after a colon ({}), found {}", quote_text(path),
              sizes_text(recipe), quote_text(size));
}

}  // namespace

std::vector<KnownRecipe> known_recipes() {
  const fs::path folder = recipe_folder();
  std::vector<KnownRecipe> known;
  for (const std::string& name : names_of_recipes(folder)) {
    const Recipe recipe = read_recipe((folder / name).string() + std::string(kSuffix));
    KnownRecipe& k = known.emplace_back(KnownRecipe{name, recipe.title, {}});
    for (const std::string_view size : kRecipeSizes) {
      if (recipe.sizes.contains(size)) k.sizes.emplace_back(size);
    }
  }
  return known;
}

std::vector<ChosenRecipe> choose_recipes(const std::string& name, const GivenOptions& given,
                                         std::size_t max_points) {
  if (name.find(kSuffix) != std::string::npos) return {choose_file(name, given, max_points)};
  const fs::path folder = recipe_folder();
  const std::vector<std::string> known = names_of_recipes(folder);
  const std::size_t dash = std::min(name.find('-'), name.size());
  const std::string size = name.substr(0, dash);
  const std::string which = name.substr(std::min(dash + 1, name.size()));
  const bool is_size = std::ranges::find(kRecipeSizes, size) != kRecipeSizes.end();
  const bool is_known = which == kAll || std::ranges::find(known, which) != known.end();
  if (!is_size || !is_known) {
    throw_usage(
        "recipe {}: expected SIZE-NAME with a size of {} and a name of all, {}, or a .toml file",
        quote_text(name), fmt::join(kRecipeSizes, ", "), fmt::join(known, ", "));
  }
  std::vector<ChosenRecipe> chosen;
  for (const std::string& each : which == kAll ? known : std::vector{which}) {
    const Recipe recipe = read_recipe((folder / each).string() + std::string(kSuffix));
    if (recipe.sizes.contains(size)) {
      chosen.push_back(choose(recipe, each, size, given, max_points));
    } else if (which != kAll) {
      throw_usage("recipe {}: expected one of its sizes ({}), found {}", quote_text(each),
                  sizes_text(recipe), size);
    }
  }
  return chosen;
}

}  // namespace triforce
