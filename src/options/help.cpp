#include <algorithm>

#include "options/command_line.h"
#include "report/printers.h"

namespace triforce {
namespace {

constexpr std::size_t kWidth = 80;

void append_row(std::string& out, std::string left, std::string_view right, std::size_t indent) {
  if (!right.empty()) left.resize(std::max(left.size() + 1, indent), ' ');
  out += left + wrap(std::string(right), kWidth, indent, left.size());
}

// The default as make_config() has it, for both sets where they differ.
std::string default_of(Command command, const Option& o) {
  const auto shown = [&](const GivenOptions& given) {
    const std::string value = to_text(o.value.get(make_config(command, given)));
    return value.empty() ? std::string(o.unset) : value;
  };
  std::string builtin = shown({});
  if (find_option(command, "target") == nullptr || o.name == "target") return builtin;
  const std::string other = shown({{"target", "any"}});
  return other == builtin ? other : fmt::format("{}; built-in pair: {}", other, builtin);
}

void append_option(std::string& out, Command command, const Option& o) {
  const auto is_short = [](std::string_view alias) { return alias.size() == 1; };
  std::string left = "  ";
  for (const std::string_view alias : o.aliases) {
    if (is_short(alias)) left += fmt::format("-{}, ", alias);
  }
  left += fmt::format("--{}{}{}", o.name, o.is_flag() ? "" : " ", o.placeholder);
  const bool has_default = o.value.get != nullptr;
  append_row(out, left,
             has_default ? fmt::format("(default: {})", default_of(command, o)) : std::string(),
             34);
  std::string facts;
  const auto add = [&](std::string_view fact) {
    if (!fact.empty()) facts += fmt::format("{}{}", facts.empty() ? "" : "; ", fact);
  };
  for (const std::string_view alias : o.aliases) {
    if (!is_short(alias)) add(fmt::format("also --{}", alias));
  }
  add(o.unit);
  if (!o.is_flag()) add(o.value.expected);
  const std::string text =
      facts.empty() ? std::string(o.help) : fmt::format("{} [{}]", o.help, facts);
  out += std::string(6, ' ') + wrap(text, kWidth, 6, 6);
}

}  // namespace

std::string help_text(Command command, bool list_commands) {
  const CommandInfo& info = command_info(command);
  std::string out = fmt::format(
      "Usage: triforce-bench {}{} [options]\n", list_commands ? "[command]" : info.name,
      info.operands.placeholder.empty() ? "" : fmt::format(" {}", info.operands.placeholder));
  if (list_commands) {
    out += "\nCommands:\n";
    for (const CommandInfo& c : command_table()) {
      append_row(out, fmt::format("  {}", c.name), c.summary, 18);
    }
    append_row(out, "  help", "this text, or with a command's name that of the command", 18);
    out += "\nOptions of run; the other commands list theirs with --help.\n";
  } else {
    out += fmt::format("\n{}\n", info.summary);
  }
  std::string_view group;
  for (const Option& o : option_table()) {
    if ((o.commands & command) == 0) continue;
    if (o.group != group) out += fmt::format("\n{}:\n", group = o.group);
    append_option(out, command, o);
  }
  out += "\n";
  out += wrap(
      "Numbers may end in k (1024). '_' is accepted for '-' in option names, --name=value for "
      "--name value.",
      kWidth, 0);
  out += wrap(
      "Exit codes: 0 ok, 1 regression, 2 usage, 3 bad input, 4 memory or disk, 5 device, 7 numeric "
      "or not "
      "lossless, 8 inconclusive, 70 internal error, 129/130/143 interrupted with a valid partial "
      "result.",
      kWidth, 0);
  out += "\nExamples:\n";
  for (const std::string_view example : info.examples) {
    out += fmt::format("  triforce-bench {}\n", example);
  }
  return out;
}

}  // namespace triforce
