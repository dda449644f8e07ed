#include "app/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "core/utf8.h"

namespace triforce {
namespace {

std::vector<std::string> names_of(Command command) {
  std::vector<std::string> names = {"help", "version", "config"};
  for (const OptionInfo& o : option_table()) {
    if ((o.commands & command) == 0) continue;
    names.push_back(o.name);
    names.insert(names.end(), o.aliases.begin(), o.aliases.end());
  }
  return names;
}

[[noreturn]] void fail_unknown(Command command, const std::string& where, std::string_view name) {
  const std::string near = nearest_name(name, names_of(command));
  throw_usage("{}unknown option {}; {}", where, quote_text("--" + std::string(name)),
              near.empty() ? "expected one of those --help lists"
                           : fmt::format("did you mean --{}?", near));
}

// Names in a TOML file are those of the command line; lists may be arrays.
class NamedConfig : public CLI::ConfigTOML {
 public:
  explicit NamedConfig(Command command) : command_(command) {}
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> read = CLI::ConfigTOML::from_config(input);
    for (CLI::ConfigItem& item : read) {
      if (!item.parents.empty()) {
        throw_usage("--config: expected options without sections, found section {}",
                    quote_text(item.parents.front()));
      }
      const OptionInfo* o = find_option(command_, item.name);
      if (o == nullptr) fail_unknown(command_, "--config: ", item.name);
      item.name = o->name;
      item.inputs = {CLI::detail::join(item.inputs, ",")};
    }
    return read;
  }

 private:
  Command command_;
};

// The command word, if there is one.
Command take_command(std::vector<std::string>& args, bool& named) {
  named = false;
  if (args.empty() || args.front().empty() || args.front().front() == '-') return kRun;
  std::vector<std::string> words;
  for (const CommandInfo& c : command_table()) {
    if (c.name == args.front()) {
      args.erase(args.begin());
      named = true;
      return c.command;
    }
    words.emplace_back(c.name);
  }
  const std::string near = nearest_name(args.front(), words);
  throw_usage(
      "unknown command {}; {}", quote_text(args.front()),
      near.empty() ? "expected one of those --help lists" : fmt::format("did you mean {}?", near));
}

// '_' becomes '-' in option names, not in their values.
void normalize_names(std::vector<std::string>& args) {
  for (std::string& arg : args) {
    if (arg == "--") return;
    if (arg.size() < 3 || arg.compare(0, 2, "--") != 0) continue;
    const auto end = arg.begin() + static_cast<std::ptrdiff_t>(std::min(arg.find('='), arg.size()));
    std::replace(arg.begin(), end, '_', '-');
  }
}

void check_extras(Command command, const CLI::App& app) {
  for (const std::string& extra : app.remaining()) {
    if (extra.size() > 1 && extra.front() == '-') {
      const std::size_t dashes = extra.compare(0, 2, "--") == 0 ? 2 : 1;
      fail_unknown(command, "", std::string_view(extra).substr(dashes, extra.find('=') - dashes));
    }
    throw_usage("unexpected argument {}; expected options beginning with --", quote_text(extra));
  }
}

GivenOptions given_options(Command command, const CLI::App& app) {
  GivenOptions given;
  for (const OptionInfo& o : option_table()) {
    if ((o.commands & command) == 0) continue;
    const CLI::Option* option = app.get_option("--" + o.name);
    if (option->count() == 0) continue;
    const std::vector<std::string>& values = option->results();
    if (values.size() > 1) {
      throw_usage("--{}: expected once, found {} times", o.name, values.size());
    }
    given[o.name] = values.front();
  }
  return given;
}

void add_options(Command command, CLI::App& app) {
  for (const OptionInfo& o : option_table()) {
    if ((o.commands & command) == 0) continue;
    std::string names = "--" + o.name;
    for (const std::string& alias : o.aliases) names += ",--" + alias;
    CLI::Option* option = o.is_flag() ? app.add_flag(names) : app.add_option(names);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
}

// CLI11 reports everything before it looks at values; these are the cases that reach here.
[[noreturn]] void rethrow(const CLI::ParseError& e, Command command, const CLI::App& app) {
  if (dynamic_cast<const CLI::FileError*>(&e) != nullptr) {
    throw_input("FileNotFound", "--config: cannot read {}",
                quote_text(app.get_option("--config")->results().front()));
  }
  std::string line = e.what();
  std::replace(line.begin(), line.end(), '\n', ' ');
  const std::size_t missing = line.find(": 1 required");
  if (missing != std::string::npos) {
    const OptionInfo* o = find_option(command, line.substr(2, missing - 2));
    throw_usage("{}: expected {}, found nothing", line.substr(0, missing),
                o == nullptr ? "a value" : o->expected);
  }
  throw_usage("{}", line);
}

void wrap(std::string& out, const std::string& text, std::size_t indent, std::size_t width) {
  std::size_t column = indent;
  bool first = true;
  for (const std::string& word : CLI::detail::split(text, ' ')) {
    if (!first && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
      first = true;
    }
    out += (first ? "" : " ") + word;
    column += word.size() + (first ? 0 : 1);
    first = false;
  }
  out += "\n";
}

void append_option(std::string& out, const std::string& left, const std::string& text) {
  constexpr std::size_t kIndent = 30;
  constexpr std::size_t kWidth = 100;
  out += left;
  out += left.size() + 1 < kIndent ? std::string(kIndent - left.size(), ' ')
                                   : "\n" + std::string(kIndent, ' ');
  wrap(out, text, kIndent, kWidth);
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& args_in) {
  std::vector<std::string> args = args_in;
  CommandLine line;
  line.command = take_command(args, line.named);
  normalize_names(args);

  CLI::App app;
  app.set_help_flag();
  const CLI::Option* help = app.add_flag("-h,--help")->configurable(false);
  const CLI::Option* version = app.add_flag("--version")->configurable(false);
  add_options(line.command, app);
  std::string path;
  if (line.command == kInspect) app.add_option("PATH", path);
  app.set_config("--config");
  app.config_formatter(std::make_shared<NamedConfig>(line.command));
  app.allow_extras();
  try {
    std::reverse(args.begin(), args.end());
    app.parse(args);
  } catch (const CLI::ParseError& e) {
    rethrow(e, line.command, app);
  }
  check_extras(line.command, app);
  if (help->count() > 0) {
    line.action = CommandLine::Action::kHelp;
    return line;
  }
  if (version->count() > 0) {
    line.action = CommandLine::Action::kVersion;
    return line;
  }
  line.config = make_config(line.command, given_options(line.command, app));
  if (line.command == kInspect && path.empty()) {
    throw_usage("inspect: expected a checkpoint folder or a .safetensors file, found nothing");
  }
  line.config.inspect_path = path;
  return line;
}

std::string help_text(Command command, bool list_commands) {
  std::string name = "run";
  std::string summary;
  for (const CommandInfo& c : command_table()) {
    if (c.command != command) continue;
    name = c.name;
    summary = c.summary;
  }
  std::string out =
      fmt::format("Usage: triforce-bench {}{} [options]\n", list_commands ? "[command]" : name,
                  command == kInspect ? " PATH" : "");
  if (list_commands) {
    out += "\nCommands:\n";
    for (const CommandInfo& c : command_table()) {
      append_option(out, fmt::format("  {}", c.name), std::string(c.summary));
    }
    out += "\nOptions of run; the other commands list theirs with --help.\n";
  } else {
    out += "\n" + summary + "\n";
  }
  std::string group;
  for (const OptionInfo& o : option_table()) {
    if ((o.commands & command) == 0) continue;
    if (o.group != group) {
      group = o.group;
      out += "\n" + group + ":\n";
    }
    std::string left = fmt::format("  --{}{}{}", o.name, o.is_flag() ? "" : " ", o.value);
    std::string facts;
    for (const std::string& alias : o.aliases) facts += "also --" + alias + "; ";
    if (!o.unit.empty()) facts += o.unit + "; ";
    if (!o.is_flag()) facts += o.expected + "; ";
    append_option(out, left, fmt::format("{} [{}default: {}]", o.help, facts, o.fallback));
  }
  out += "\nGeneral:\n";
  append_option(out, "  --config FILE", "TOML file of option = value lines; the command line wins");
  append_option(out, "  --help, -h", "this text");
  append_option(out, "  --version", "the program's version");
  out +=
      "\nNumbers may end in k (1024). '_' is accepted for '-' in option names.\n"
      "Exit codes: 0 ok, 2 usage, 3 bad input, 4 memory or disk, 5 device, 7 numeric or not "
      "lossless,\n8 inconclusive, 70 internal error, 129/130/143 interrupted with a valid partial "
      "result.\n";
  return out;
}

}  // namespace triforce
