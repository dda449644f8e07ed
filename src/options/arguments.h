// The words of a command line, split by CLI11, and the help text, laid out by it. Both are fed from
// option_table() and command_table(), so that no other file of ours knows CLI11.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "options/options.h"

namespace triforce {

struct Arguments {
  bool help = false, version = false;
  Command command = kRun;
  bool named = false;                 // the command's word was given
  std::vector<std::string> topics;    // what help is wanted of
  GivenOptions given;                 // as they are written: no value is checked
  std::vector<std::string> operands;  // no more than the command takes
};
// `args` without the program's name. Throws Error(kUsage) for an unknown command or option, an
// option that is given twice, one without its value, and a word too many.
Arguments read_arguments(const std::vector<std::string>& args);

// Returns what --help prints, at most 80 columns wide. For `topic` "" it has the usage, examples,
// the most used options and the groups of all others. A command with few options has all of them
// there. For "all" it has all options with defaults, units and ranges. For an option_groups() name
// it has those of that group. `named` says that the command's word was given; without it the list
// of commands is there, too.
std::string help_text(Command command, std::string_view topic, bool named);

}  // namespace triforce
