// The one table of options: parser, validation, help text and the echo in results come from it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/config.h"

namespace triforce {

// Commands of the program; a set of them is their bitwise or.
enum Command : unsigned {
  kRun = 1,
  kPlan = 2,
  kPerplexity = 4,
  kInspect = 8,
  kListDevices = 16,
  kSelftest = 32,
};
struct CommandInfo {
  Command command;
  std::string_view name;
  std::string_view summary;
};
const std::vector<CommandInfo>& command_table();

struct OptionInfo {
  std::string name;  // kebab-case, without dashes
  std::vector<std::string> aliases;
  std::string group;     // heading in the help text
  std::string value;     // placeholder, e.g. "N|auto"; empty: a flag
  std::string unit;      // "tokens", "s"; empty: none
  std::string expected;  // what a good value is, for help and errors: "an integer in 1..31"
  std::string fallback;  // the default as the help text shows it
  std::string help;
  unsigned commands = 0;
  // Stores a value; throws Error(kUsage) naming the option, what was expected and what was found.
  std::function<void(const OptionInfo&, RunConfig&, std::string_view)> set;
  // The value for echo_params().
  std::function<ParamValue(const RunConfig&)> get;

  bool is_flag() const { return value.empty(); }
};
const std::vector<OptionInfo>& option_table();

// The sizes of a run that suit the built-in pair, and those of the paper (arXiv 2404.11912,
// section 5.1 and its published code) for every other target.
struct ShapeDefaults {
  std::int64_t prefill, gen_len, budget;
  int gamma, inner_gamma;
};
inline constexpr ShapeDefaults kPaperDefaults{124928, 256, 4096, 6, 1};
inline constexpr ShapeDefaults kBuiltinDefaults{15872, 256, 2048, 6, 1};

// Option values as given, by name; flags hold "true" or "false".
using GivenOptions = std::map<std::string, std::string, std::less<>>;
// Defaults, then the given values, then the checks that need more than one option.
// Throws Error(kUsage).
RunConfig make_config(Command command, const GivenOptions& given);

// The entry of option_table() that `command` knows by this name or alias ('_' counts as '-');
// nullptr: none.
const OptionInfo* find_option(Command command, std::string_view name);
// The known name closest to a misspelt one; empty if none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace triforce
