#include "options/recipes.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/utf8.h"
#include "data/data_folder.h"
#include "options/config_file.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".toml", kAll = "all";

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
    if ((o.commands & kSweep) == 0 || o.name == "method") continue;
    const auto value_of = [&](const AxisPoint& p) {
      const auto it = p.given.find(o.name);
      return it == p.given.end() ? std::string("default") : it->second.value;
    };
    const bool differs = std::any_of(points.begin(), points.end(), [&](const AxisPoint& p) {
      return value_of(p) != value_of(points.front());
    });
    if (!differs) continue;
    for (AxisPoint& p : points) p.axes.emplace_back(o.name, value_of(p));
  }
}

std::vector<AxisPoint> points_of(const Recipe& recipe, const std::string& size,
                                 const GivenOptions& given, std::size_t max_points) {
  static const std::vector<GivenOptions> kNone(1);
  const auto it = recipe.sizes.find(size);
  std::vector<AxisPoint> points;
  for (const GivenOptions& of_size : it == recipe.sizes.end() ? kNone : it->second) {
    for (const RecipeBlock& block : recipe.blocks) {
      if (!is_of(block.sizes, size)) continue;
      const GivenOptions all = merged({&recipe.options, &of_size, &block.options, &given});
      for (AxisPoint& p : expand_axes(kSweep, all, max_points)) {
        points.push_back(std::move(p));
      }
    }
  }
  name_axes(points);
  return points;
}

std::vector<std::string> known_recipes(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == kSuffix) names.push_back(it->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

ChosenRecipe choose(const Recipe& recipe, const std::string& name, const std::string& size,
                    const GivenOptions& given, std::size_t max_points) {
  ChosenRecipe c{name,
                 size,
                 recipe.title,
                 recipe.source,
                 recipe.about,
                 recipe.published,
                 recipe.cannot,
                 {},
                 {},
                 recipe.columns,
                 {}};
  c.points = points_of(recipe, size, given, max_points);
  c.directions =
      choose_directions(recipe.directions, size, points_of(recipe, size, {}, max_points), c.points);
  if (recipe.sizes.contains("paper")) c.paper_points = points_of(recipe, "paper", {}, max_points);
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

std::vector<ChosenRecipe> choose_recipes(const std::string& name, const GivenOptions& given,
                                         std::size_t max_points) {
  if (name.find(kSuffix) != std::string::npos) return {choose_file(name, given, max_points)};
  const fs::path folder = find_data_folder().root / "experiments";
  const std::vector<std::string> known = known_recipes(folder);
  const std::size_t dash = std::min(name.find('-'), name.size());
  const std::string size = name.substr(0, dash);
  const std::string which = name.substr(std::min(dash + 1, name.size()));
  const bool is_size =
      std::find(kRecipeSizes.begin(), kRecipeSizes.end(), size) != kRecipeSizes.end();
  const bool is_known =
      which == kAll || std::find(known.begin(), known.end(), which) != known.end();
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
