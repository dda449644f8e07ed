#include "options/command_line.h"

#include <algorithm>

#include "core/nearest_name.h"
#include "core/utf8.h"
#include "options/arguments.h"
#include "options/axes.h"
#include "options/config_file.h"

namespace triforce {
namespace {

// Throws if there are fewer operands than the command needs.
void check_operands(const Arguments& found) {
  const CommandInfo& info = command_info(found.command);
  if (found.operands.size() >= info.operands.count.first) return;
  throw_usage("{}: expected {}, found {}", info.name, info.operands.expected,
              found.operands.empty() ? "nothing" : quote_text(found.operands.front()) + " alone");
}

// The topics say what help is wanted of: "compare", "output", "all", or a command and one of the
// others.
void settle_help(const std::vector<std::string>& topics, CommandLine& line) {
  for (const std::string& topic : topics) {
    const Command* const command = line.named ? nullptr : command_named(topic);
    if (command != nullptr) {
      line.command = *command;
      line.named = true;
      continue;
    }
    std::vector<std::string> known = {"all"};
    for (const Option& o : option_table()) {
      if ((o.commands & line.command) != 0 && o.group != known.back()) known.emplace_back(o.group);
    }
    if (line.topic.empty() && std::ranges::find(known, topic) != known.end()) {
      line.topic = topic;
      continue;
    }
    const std::string groups = fmt::format("{}", fmt::join(known, ", "));
    if (!line.named) {
      for (const CommandInfo& c : command_table()) known.emplace_back(c.name);
    }
    throw_usage("--help: expected {}{}, found {}{}",
                line.named ? "one of " : "a command or one of ", groups, quote_text(topic),
                did_you_mean(topic, known));
  }
}

// "true" of a flag that a sweep needs before it has configurations.
bool is_set(const GivenOptions& given, std::string_view name) {
  const auto it = given.find(name);
  return it != given.end() && it->second.value == "true";
}

// `sweep`, or `sweep --list`: of which nothing says what.
bool is_nothing_to_sweep(const GivenOptions& given) {
  return std::ranges::all_of(given, [](const auto& o) { return o.first == "list"; });
}

std::size_t most_cases(const GivenOptions& given) {
  return is_set(given, "yes") ? kMaxCasesMeant : kMaxCases;
}

bool is_sweep(Command command, const GivenOptions& given) {
  if (command == kSweep) return true;
  if (command != kRun) return false;
  const auto has_several = [&](const Option& o) {
    const auto it = given.find(o.name);
    return (o.commands & kRun) != 0 && it != given.end() &&
           expand_values(o, it->second, most_cases(given)).size() > 1;
  };
  const char* const kOfSweeps[] = {"resume", "shard", "merge"};
  return is_set(given, "list") ||
         std::any_of(std::begin(kOfSweeps), std::end(kOfSweeps),
                     [&](const char* name) { return given.contains(name); }) ||
         std::ranges::any_of(option_table(), has_several);
}

void add_cases(const std::vector<AxisPoint>& points, std::size_t recipe,
               std::vector<SweepCase>& cases) {
  for (const AxisPoint& point : points) {
    SweepCase& c = cases.emplace_back();
    c.recipe = recipe;
    c.axes = point.axes;
    c.machine = point.machine;
    const auto make = [&] { c.config = make_config(kSweep, point.given); };
    if (const auto error = error_of(ExitCode::kUsage, make)) c.refusal = error->what();
  }
}

// The cases of `sweep`, or of `run` with several values.
void settle_cases(CommandLine& line, const GivenOptions& given,
                  const std::vector<std::string>& operands) {
  const std::size_t most = most_cases(given);
  if (operands.empty()) {
    add_cases(expand_axes(kSweep, given, most), 0, line.cases);
    return;
  }
  line.recipes = choose_recipes(operands.front(), given, most);
  std::size_t points = 0;
  for (const ChosenRecipe& r : line.recipes) points += r.points.size();
  if (points > most) {
    throw_usage("expected at most {}, found {}", limit_text(most, "cases"), points);
  }
  for (std::size_t i = 0; i < line.recipes.size(); ++i) {
    add_cases(line.recipes[i].points, i, line.cases);
  }
}

// Throws Error(kUsage) with the first case's refusal if none is valid.
const SweepCase& first_valid(const std::vector<SweepCase>& cases) {
  for (const SweepCase& c : cases) {
    if (c.config) return c;
  }
  throw Error(ExitCode::kUsage, "Usage", cases.front().refusal);
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& args) {
  using Action = CommandLine::Action;
  Arguments found = read_arguments(args);
  CommandLine line;
  line.command = found.command;
  line.named = found.named;
  if (found.help) {
    line.action = Action::kHelp;
    settle_help(found.topics, line);
    return line;
  }
  if (found.version) {
    line.action = Action::kVersion;
    return line;
  }
  GivenOptions& given = found.given;
  if (line.command == kSweep && found.operands.empty() && is_nothing_to_sweep(given)) {
    line.action = Action::kListRecipes;
    return line;
  }
  std::string config_file;
  if (const auto config = given.extract("config"); !config.empty()) {
    config_file = config.mapped().value;
    given.merge(read_config_file(line.command, config_file));  // what is there stays
  }
  if (is_sweep(line.command, given)) {
    check_operands(found);
    settle_cases(line, given, found.operands);
    for (SweepCase& c : line.cases) {
      if (!c.config) continue;
      c.config->config_file = config_file;
      c.config->operands = found.operands;
    }
    line.config = *first_valid(line.cases).config;
    return line;
  }
  line.config = make_config(line.command, given);
  line.config.config_file = config_file;
  check_operands(found);
  line.config.operands = found.operands;
  return line;
}

}  // namespace triforce
