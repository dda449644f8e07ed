// Options from TOML files, under the names of the command line: the file of --config, and recipes
// of experiments.
#pragma once
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "options/options.h"

namespace triforce {

// Options of `command` from a file of `option = value` lines; a list is joined by commas. Messages
// begin with file and line. Throws Error(kUsage) for unknown options and values of another type,
// Error(kBadInput): InvalidToml, and what reading a file throws.
GivenOptions read_config_file(Command command, const std::string& path);

// What an experiment is measured with: the paper's models and sizes; the paper's sizes with random
// weights and the published acceptances, for times; the built-in pair.
inline constexpr std::array<std::string_view, 3> kRecipeSizes = {"paper", "gpu", "tiny"};

// An experiment (data/experiments): the cases of one table or figure.
//
//   title = "Figure 6b: ..."     source = "arXiv 2404.11912v3, figure 6b"
//   about = "what to look at"    published = "Figure 6b"
//   cannot = ["published points that cannot run, and why"]
//   [options]                    of all cases
//   [tiny]                       of all cases of this size; also [gpu], [paper]; [[tiny]], more
//                                than once: of each in turn
//   [[cases]]                    one block of cases; none: one block without options of its own
//
// Options of a later section replace those of an earlier one; each may have several values
// (axes.h).
struct Recipe {
  std::string title, source, about;
  std::string published;  // of published results those whose source begins so
  std::vector<std::string> cannot;
  GivenOptions options;
  std::map<std::string, std::vector<GivenOptions>, std::less<>> sizes;  // each at least one
  std::vector<GivenOptions> blocks;
};
// Throws as read_config_file(), and Error(kBadInput, "InvalidRecipe") for one without a title.
Recipe read_recipe(const std::string& path);

}  // namespace triforce
