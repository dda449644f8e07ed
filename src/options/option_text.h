// The help text says this of an option and of a command.
#pragma once
#include <string>

#include "options/options.h"

namespace triforce {

// The default as make_config() has it, for both sets where they differ: "124928; built-in pair:
// 15872". The option has a value: it is none of the command line's own.
std::string default_of(Command command, const Option& option);
// The help of an option, and in brackets its other names, its unit and what a good value is.
std::string description_of(const Option& option);
// "Exit codes: 0 ok, 1 regression. Errors: 2 usage.": what a command can end with.
std::string exit_codes_of(const CommandInfo& info);

}  // namespace triforce
