// Reads argv into a command and its configuration.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "options/recipes.h"

namespace triforce {

// A case of a sweep: the option values that tell it from the others, and its configuration, or why
// its options do not go together.
struct SweepCase {
  std::size_t recipe = 0;  // of CommandLine::recipes, if there are any
  std::vector<std::pair<std::string, std::string>> axes;
  std::optional<RunConfig> config;
  std::string refusal;
  std::string machine;  // that its recipe is meant for: AxisPoint::machine
};

struct CommandLine {
  enum class Action : std::uint8_t { kExecute, kHelp, kVersion, kListRecipes };
  Action action = Action::kExecute;
  Command command = kRun;
  bool named = false;  // the command's word was given
  std::string topic;   // of kHelp, as help_text() has it (arguments.h)
  RunConfig config;    // of a sweep: its first case's that has one
  // `sweep` has cases. So has `run` where options have several values, or where it is journalled or
  // listed.
  std::vector<SweepCase> cases;
  std::vector<ChosenRecipe> recipes;  // that `sweep` was asked for
};

// `args` without the program's name. The first may be a command's word, or help. Options may be
// written --name value, --name=value or -n value, with '_' for '-'; --config reads more of them
// from a TOML file (config_file.h), and the command line wins. Throws Error(kUsage) with one line
// naming the option, what was expected and what was found.
CommandLine parse_command_line(const std::vector<std::string>& args);

}  // namespace triforce
