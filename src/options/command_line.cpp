// Splits argv by hand: option names, values and messages all come from option_table(), so that a
// parser library would add its own table, its own sentences and a translation of both.
#include "options/command_line.h"

#include <algorithm>
#include <utility>

#include "core/utf8.h"
#include "options/axes.h"
#include "options/config_file.h"

namespace triforce {
namespace {

Command command_named(const std::string& word) {
  std::vector<std::string> words = {"help"};
  for (const CommandInfo& c : command_table()) {
    if (c.name == word) return c.command;
    words.emplace_back(c.name);
  }
  const std::string near = nearest_name(word, words);
  throw_usage(
      "unknown command {}; {}", quote_text(word),
      near.empty() ? "expected one of those --help lists" : fmt::format("did you mean {}?", near));
}

// "--gen_len" or "-n", without a value.
const Option* option_of_word(Command command, std::string_view word) {
  const std::size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  const std::string_view name = word.substr(dashes);
  const bool fits = name.size() == 1 ? dashes == 1 : dashes == 2;
  return fits ? find_option(command, name) : nullptr;
}

class ArgumentReader {
 public:
  ArgumentReader(Command command, const std::vector<std::string>& args, std::size_t first)
      : command_(command), args_(args), next_(first) {}

  GivenOptions read() {
    for (bool words = true; next_ < args_.size();) {
      const std::string& word = args_[next_++];
      const std::string flag_before = std::exchange(flag_before_, "");
      if (words && word == "--") {
        words = false;
      } else if (words && word.size() > 1 && word.front() == '-') {
        read_option(word);
      } else {
        read_operand(word, flag_before);
      }
    }
    return std::move(given_);
  }
  // What is no option. Throws if there are fewer than the command needs.
  std::vector<std::string> take_operands() {
    const CommandInfo& info = command_info(command_);
    if (operands_.size() < info.operands.count.first) {
      throw_usage("{}: expected {}, found {}", info.name, info.operands.expected,
                  operands_.empty() ? "nothing" : quote_text(operands_.front()) + " alone");
    }
    return std::move(operands_);
  }

 private:
  void read_option(const std::string& word) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    const Option* o = option_of_word(command_, name);
    if (o == nullptr) {
      throw_usage(
          "unknown option {}; {}", quote_text(name),
          suggest_option(command_, name.substr(std::min(name.find_first_not_of('-'), name.size())),
                         "--"));
    }
    if (equals < word.size()) {
      give(given_, *o, word.substr(equals + 1));
    } else {
      if (o->is_flag()) flag_before_ = word;
      give(given_, *o, o->is_flag() ? "true" : next_value(*o));
    }
  }

  // The next word, unless it is an option: --json --verbose is a value forgotten. A value that
  // begins with two dashes is written --json=--name.
  std::string next_value(const Option& o) {
    if (next_ == args_.size()) {
      throw_usage("--{}: expected {}, found nothing", o.name, o.value.expected);
    }
    const std::string& word = args_[next_++];
    if (word.starts_with("--") || option_of_word(command_, word) != nullptr) {
      throw_usage("--{}: expected {}, found the option {}", o.name, o.value.expected,
                  quote_text(word));
    }
    return word;
  }

  // `flag_before`: the word before it, if that is a flag: `inspect --json FILE` means --json of
  // run.
  void read_operand(const std::string& word, const std::string& flag_before) {
    if (operands_.size() == command_info(command_).operands.count.second) {
      if (!flag_before.empty()) {
        throw_usage("unexpected argument {}; {} of {} takes no value", quote_text(word),
                    flag_before, command_info(command_).name);
      }
      throw_usage("unexpected argument {}; expected options beginning with --", quote_text(word));
    }
    operands_.push_back(word);
  }

  Command command_;
  const std::vector<std::string>& args_;
  std::size_t next_;
  GivenOptions given_;
  std::vector<std::string> operands_;
  std::string flag_before_;
};

// Takes a word of the command line itself out of the options.
bool take_flag(GivenOptions& given, std::string_view name) {
  const auto node = given.extract(std::string(name));
  if (node.empty() || node.mapped().value == "false") return false;
  if (node.mapped().value == "true") return true;
  throw_usage("--{}: expected true or false, found {}", name, quote_text(node.mapped().value));
}

// "true" of a flag that a sweep needs before it has configurations.
bool is_set(const GivenOptions& given, std::string_view name) {
  const auto it = given.find(name);
  return it != given.end() && it->second.value == "true";
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
         std::any_of(option_table().begin(), option_table().end(), has_several);
}

void add_cases(const std::vector<AxisPoint>& points, std::size_t recipe,
               std::vector<SweepCase>& cases) {
  for (const AxisPoint& point : points) {
    SweepCase& c = cases.emplace_back();
    c.recipe = recipe;
    c.axes = point.axes;
    c.machine = point.machine;
    try {
      c.config = make_config(kSweep, point.given);
    } catch (const Error& e) {
      if (e.code() != ExitCode::kUsage) throw;
      c.refusal = e.what();
    }
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
  CommandLine line;
  std::size_t first = 0;
  const bool asks_help = !args.empty() && args.front() == "help";
  if (asks_help) ++first;
  if (first < args.size() && !args[first].empty() && args[first].front() != '-') {
    line.command = command_named(args[first++]);
    line.named = true;
  }
  ArgumentReader reader(line.command, args, first);
  GivenOptions given = reader.read();
  if (take_flag(given, "help") || asks_help) {
    line.action = Action::kHelp;
    return line;
  }
  if (take_flag(given, "version")) {
    line.action = Action::kVersion;
    return line;
  }
  std::string config_file;
  if (const auto config = given.extract("config"); !config.empty()) {
    config_file = config.mapped().value;
    given.merge(read_config_file(line.command, config_file));  // what is there stays
  }
  if (is_sweep(line.command, given)) {
    const std::vector<std::string> operands = reader.take_operands();
    settle_cases(line, given, operands);
    for (SweepCase& c : line.cases) {
      if (!c.config) continue;
      c.config->config_file = config_file;
      c.config->operands = operands;
    }
    line.config = *first_valid(line.cases).config;
    return line;
  }
  line.config = make_config(line.command, given);
  line.config.config_file = config_file;
  line.config.operands = reader.take_operands();
  return line;
}

}  // namespace triforce
