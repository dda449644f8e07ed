// Tests: tests/options/help_test.cpp, tests/options/command_line_test.cpp
#include "options/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "core/nearest_name.h"
#include "core/utf8.h"
#include "options/option_text.h"
#include "report/printers.h"

namespace triforce {
namespace {

constexpr std::size_t kWidth = 80;
constexpr int kMaxTopics = 2;  // of help: a command and a group
constexpr const char* kProgram = "triforce-bench";

// "--gen_len" or "-n", without a value; nullptr: no option of the command.
const Option* option_of_word(Command command, std::string_view word) {
  const std::size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  const std::string_view name = word.substr(dashes);
  const bool fits = name.size() == 1 ? dashes == 1 : dashes == 2;
  return fits ? find_option(command, name) : nullptr;
}

[[noreturn]] void refuse_option(Command command, std::string_view word) {
  const std::string name(word.substr(0, word.find('=')));
  throw_usage("unknown option {}; {}", quote_text(name),
              suggest_option(
                  command, name.substr(std::min(name.find_first_not_of('-'), name.size())), "--"));
}

void append_row(std::string& out, std::string left, std::string_view right, std::size_t indent) {
  if (!right.empty()) left.resize(std::max(left.size() + 1, indent), ' ');
  out += left + wrap(std::string(right), kWidth, indent, left.size());
}

// CLI11's help in our order: examples before options, options that are used most before the others,
// an option's text below its name. Which of it: make_help() of the program, of a command or of one
// of its groups.
class HelpLayout : public CLI::Formatter {
 public:
  explicit HelpLayout(Command command) : info_(command_info(command)) {}

  std::string make_help(const CLI::App* app, std::string /*name*/,
                        CLI::AppFormatMode mode) const override {
    if (app->get_parent() == nullptr) return of_program(app);
    if (app->get_name().empty()) return of_group(app);
    return of_command(app, mode == CLI::AppFormatMode::All);
  }
  std::string make_option(const CLI::Option* option, bool /*is_positional*/) const override {
    std::string out;
    const std::string standard = option->get_default_str();
    append_row(out, names_of(option),
               standard.empty() ? std::string() : fmt::format("(default: {})", standard), 34);
    return out + std::string(6, ' ') + wrap(option->get_description(), kWidth, 6, 6);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::string out;
    append_row(out, "  " + command->get_name(), command->get_description(), 16);
    return out;
  }
  std::string make_usage(const CLI::App* app, std::string words) const override {
    const bool commands = app->get_parent() == nullptr;
    return fmt::format("Usage: {} {}{} [options]\n", kProgram,
                       commands ? "[command]" : app->get_name(), words);
  }
  std::string make_footer(const CLI::App* /*app*/) const override {
    std::string out = "\n";
    const bool numbers = find_option(info_.command, "seed") != nullptr ||
                         find_option(info_.command, "prefill") != nullptr;
    if (numbers) {
      out +=
          wrap("Numbers may end in k (1024). '_' is accepted for '-' in option names.", kWidth, 0);
    }
    return out + wrap(exit_codes_of(info_), kWidth, 0);
  }

 private:
  // "  -p, --prefill N"
  static std::string names_of(const CLI::Option* option) {
    std::string names = "  ";
    for (const std::string& letter : option->get_snames()) names += fmt::format("-{}, ", letter);
    return fmt::format("{}--{}{}{}", names, option->get_lnames().front(),
                       option->get_type_name().empty() ? "" : " ", option->get_type_name());
  }
  static std::vector<const CLI::App*> groups_of(const CLI::App* command) {
    return command->get_subcommands(
        [](const CLI::App* sub) { return sub->get_name().empty() && !sub->get_group().empty(); });
  }
  std::string examples() const {
    std::string out = "\nExamples:\n";
    for (const std::string_view example : info_.examples) {
      out += fmt::format("  {} {}\n", kProgram, example);
    }
    return out;
  }
  std::string of_program(const CLI::App* app) const {
    std::string out = make_usage(app, {}) + examples() + "\nCommands:\n";
    for (const CLI::App* command : app->get_subcommands({})) out += make_subcommand(command);
    return out + usual_options(app->get_subcommand(std::string(info_.name)), "") + make_footer(app);
  }
  std::string of_group(const CLI::App* group) const {
    std::string out = fmt::format("{}:\n", group->get_group());
    for (const CLI::Option* option : group->get_options()) out += make_option(option, false);
    return out;
  }
  std::string of_command(const CLI::App* command, bool all) const {
    const std::string_view operands = info_.operands.placeholder;
    std::string out = make_usage(command, operands.empty() ? "" : fmt::format(" {}", operands));
    out += fmt::format("\n{}\n{}", command->get_description(), examples());
    if (all || info_.usual.empty()) {
      for (const CLI::App* group : groups_of(command)) out += "\n" + of_group(group);
    } else {
      out += usual_options(command, fmt::format(" {}", info_.name));
    }
    return out + make_footer(command);
  }
  // Each option has one line or two, up to where its text goes into details. The groups of all
  // options follow.
  std::string usual_options(const CLI::App* command, std::string_view word) const {
    std::string out = "\nMost used options:\n";
    for (const std::string_view name : info_.usual) {
      const CLI::Option* option = command->get_option(fmt::format("--{}", name));
      const std::string text = option->get_description();
      const std::size_t end = std::min({text.find("; "), text.find(". "), text.find(": "),
                                        text.find(" ["), text.find(" ("), text.size()});
      append_row(out, names_of(option), text.substr(0, end), 29);
    }
    out += fmt::format("\nAll options by group: {}{} --help GROUP\n", kProgram, word);
    for (const OptionGroup& g : option_groups()) {
      const bool has_it = std::ranges::any_of(option_table(), [&](const Option& o) {
        return o.group == g.name && (o.commands & info_.command) != 0;
      });
      if (has_it) append_row(out, fmt::format("  {}", g.name), g.about, 16);
    }
    append_row(out, "  all", "all options", 16);
    return out;
  }

  const CommandInfo& info_;
};

class Parser {
 public:
  // `shown`: the command whose help is wanted, with the defaults of its options.
  explicit Parser(std::optional<Command> shown = std::nullopt) {
    app_.set_help_flag();  // --help takes words, which CLI11's flag does not
    app_.require_subcommand(0, 1);
    app_.allow_extras();  // they get messages of ours
    app_.formatter(std::make_shared<HelpLayout>(shown.value_or(kRun)));
    for (const CommandInfo& info : command_table()) add_command(info, shown == info.command);
    app_.add_subcommand("help", "this text, or with a command's name that of the command")
        ->add_option("topics", [this](const CLI::results_t& words) { return set_topics(words); })
        ->expected(kMaxTopics + 1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }

  Arguments read(const std::vector<std::string>& args) {
    args_ = args;
    // CLI11 has no command that may be left out.
    if (args_.empty() || args_.front().starts_with('-')) args_.insert(args_.begin(), "run");
    if (const Command* command = command_named(args_.front())) {
      found_.command = *command;
      found_.named = args_.size() == args.size();
    }
    found_.help = args_.front() == "help";
    std::vector<std::string> words = written_for_cli11();
    const std::string last = words.back();
    std::ranges::reverse(words);
    try {
      app_.parse(std::move(words));
    } catch (const CLI::CallForHelp&) {
      return std::move(found_);
    } catch (const CLI::CallForVersion&) {
      return std::move(found_);
    } catch (const CLI::ArgumentMismatch&) {  // the last word is an option
      const Option* o = option_of_word(found_.command, last);
      if (o == nullptr) throw_usage("{}: expected a value, found nothing", last);  // a cluster
      throw_usage("--{}: expected {}, found nothing", o->name, o->value.expected);
    }
    refuse_what_is_left(app_.remaining());
    refuse_what_is_left(app_.get_subcommand(args_.front())->remaining());
    std::vector<std::string>& words_of = found_.help ? found_.topics : found_.operands;
    const std::size_t most =
        found_.help ? std::size_t{kMaxTopics} : command_info(found_.command).operands.count.second;
    if (words_of.size() > most) refuse_what_is_left({words_of[most]});
    return std::move(found_);
  }

  std::string help(std::string_view topic, Command command, bool named) const {
    if (topic.empty() && !named) return app_.help();
    const CLI::App* const of_command = app_.get_subcommand(std::string(command_info(command).name));
    if (topic.empty()) return of_command->help();
    if (topic == "all") return of_command->help({}, CLI::AppFormatMode::All);
    for (const OptionGroup& g : option_groups()) {
      if (g.name == topic) return of_command->get_option_group(std::string(g.title))->help();
    }
    TF_CHECK(false, "topic {}", topic);
  }

 private:
  void add_command(const CommandInfo& info, bool shown) {
    CLI::App* const command =
        app_.add_subcommand(std::string(info.name), std::string(info.summary));
    command->formatter(std::make_shared<HelpLayout>(info.command));
    for (const OptionGroup& g : option_groups()) {
      CLI::App* group = nullptr;
      for (const Option& o : option_table()) {
        if (o.group != g.name || (o.commands & info.command) == 0) continue;
        if (group == nullptr) {
          group = command->add_option_group(std::string(g.title), std::string(g.about));
        }
        CLI::Option* const option = add_option(*group, o);
        if (shown && o.value.get) option->default_str(default_of(info.command, o));
      }
    }
    // Also where none may be, and one more than there may be: CLI11 would take an empty word for
    // the name of a group of options. How few there may be is checked after the options
    // (command_line.cpp): of two mistakes a wrong option is said first.
    command
        ->add_option("operands",
                     [this](const CLI::results_t& words) {
                       found_.operands = words;
                       return true;
                     })
        ->expected(static_cast<int>(info.operands.count.second) + 1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }

  CLI::Option* add_option(CLI::App& group, const Option& o) {
    std::string names = fmt::format("--{}", o.name);
    for (const std::string_view alias : o.aliases) {
      names += fmt::format(",{}{}", alias.size() == 1 ? "-" : "--", alias);
    }
    CLI::Option* option = nullptr;
    if (o.name == "help") {
      option = group.add_option(names, [this](const CLI::results_t& words) -> bool {
        set_topics(words);
        throw CLI::CallForHelp();
      });
      option->expected(0, kMaxTopics);
    } else {
      option = group.add_option(names, [this, &o](const CLI::results_t& values) {
        take(o, values);
        return true;
      });
      option->expected(o.is_flag() ? 0 : 1);
    }
    option->description(description_of(o));
    option->type_name(std::string(o.placeholder));
    // Twice is an error with a sentence of ours.
    return option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }

  bool set_topics(const CLI::results_t& words) {
    found_.help = true;
    for (const std::string& word : words) {
      if (!word.empty()) found_.topics.push_back(word);
    }
    return true;
  }

  void take(const Option& o, const CLI::results_t& values) {
    for (const std::string& value : values) {
      refuse_option_for_value(o, value);
      give(found_.given, o, value);
    }
    if (o.name != "version") return;
    found_.version = values.front() == "true";
    if (found_.version) throw CLI::CallForVersion("", 0);
    if (values.front() != "false") {
      throw_usage("--version: expected true or false, found {}", quote_text(values.front()));
    }
    found_.given.erase(found_.given.find(o.name));
  }

  // CLI11 takes any word for a value: --json --verbose is a value forgotten. A value that begins
  // with two dashes is written --json=--name.
  void refuse_option_for_value(const Option& o, const std::string& value) const {
    if (!value.starts_with("--") && option_of_word(found_.command, value) == nullptr) return;
    const bool joined = std::ranges::any_of(
        args_, [&](const std::string& word) { return word.ends_with("=" + value); });
    if (joined) return;
    throw_usage("--{}: expected {}, found the option {}", o.name, o.value.expected,
                quote_text(value));
  }

  // CLI11 does not know these: '_' for '-' in names, -o=value, and --name= for an empty value. One
  // dash before a long name is a slip, no cluster of short names, and "++" no end of a command.
  std::vector<std::string> written_for_cli11() const {
    std::vector<std::string> words;
    bool options = true;
    for (const std::string& word : args_) {
      options = options && word != "--";
      if (word == "++") throw_usage("unexpected argument \"++\"; expected a name or an option");
      if (!options || word.size() < 2 || word.front() != '-') {
        words.push_back(word);
        continue;
      }
      const std::size_t equals = std::min(word.find('='), word.size());
      std::string name = word.substr(0, equals);
      const bool is_long = name.starts_with("--");
      if (is_long && option_of_word(found_.command, name) != nullptr) {
        std::replace(name.begin(), name.end(), '_', '-');
      }
      if (!is_long && name.size() > 2 && find_option(found_.command, name.substr(1)) != nullptr) {
        refuse_option(found_.command, name);
      }
      if (equals == word.size()) {
        words.push_back(name);
      } else if (is_long && equals + 1 < word.size()) {
        words.push_back(name + word.substr(equals));
      } else {
        words.insert(words.end(), {name, word.substr(equals + 1)});
      }
    }
    return words;
  }

  // Words that CLI11 had no use for.
  void refuse_what_is_left(const std::vector<std::string>& words) const {
    for (const std::string& word : words) {
      if (word == "--") continue;
      if (args_.front() == "help") {
        throw_usage("help: expected a command or a group of options, found {}", quote_text(word));
      }
      if (command_named(args_.front()) == nullptr) refuse_command(word);
      if (word.size() > 1 && word.front() == '-') refuse_option(found_.command, word);
      // `inspect --verbose FILE`: a flag that the user takes for an option with a value.
      const auto at = std::ranges::find(args_, word);
      if (at != args_.begin() && at != args_.end()) {
        const Option* const before = option_of_word(found_.command, *std::prev(at));
        if (before != nullptr && before->is_flag()) {
          throw_usage("unexpected argument {}; {} of {} takes no value", quote_text(word),
                      *std::prev(at), command_info(found_.command).name);
        }
      }
      throw_usage("unexpected argument {}; expected options beginning with --", quote_text(word));
    }
  }

  [[noreturn]] static void refuse_command(const std::string& word) {
    std::vector<std::string> words = {"help"};
    for (const CommandInfo& c : command_table()) words.emplace_back(c.name);
    std::string hint = did_you_mean(word, words);
    std::error_code error;
    const bool is_result = word.ends_with(".json") || word.ends_with(".jsonl");
    if (is_result && std::filesystem::exists(word, error)) {
      hint = fmt::format("; did you mean show {}?", word);
    }
    throw_usage("unknown command {}{}", quote_text(word),
                hint.empty() ? "; expected one of those --help lists" : hint);
  }

  std::vector<std::string> args_;  // with the command's word
  Arguments found_;
  CLI::App app_{"", kProgram};
};

}  // namespace

Arguments read_arguments(const std::vector<std::string>& args) { return Parser().read(args); }

std::string help_text(Command command, std::string_view topic, bool named) {
  return Parser(command).help(topic, command, named);
}

}  // namespace triforce
