// The one table of options: parser, limits, help text, the echo in results and the identity of a
// case come from it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/parse_number.h"
#include "options/config.h"
#include "triforce/error.h"

namespace triforce {

// Commands of the program; a set of them is their bitwise or.
enum Command : unsigned {
  kRun = 1,
  kPlan = 2,
  kPerplexity = 4,
  kInspect = 8,
  kListDevices = 16,
  kSelftest = 32,
  kSweep = 64,
  kCompare = 128,
  kExport = 256,
  kShow = 512,
};
inline constexpr unsigned kAllCommands = 1023;
// The words of a command that are no options: `count.first` to `count.second` of them.
struct Operands {
  std::pair<std::size_t, std::size_t> count{0, 0};
  std::string_view placeholder;  // "BASE NEW"
  std::string_view expected;     // "a checkpoint folder or a .safetensors file", for messages
};
struct CommandInfo {
  Command command;
  std::string_view name;
  std::string_view summary;
  Operands operands;
  std::vector<std::string_view> examples;  // what follows "triforce-bench "
  // Options that its --help shows; the others are in groups. Empty: it shows all, being few.
  std::vector<std::string_view> usual;
  std::vector<ExitCode> exit_codes;  // that it can end with
};
const std::vector<CommandInfo>& command_table();
const CommandInfo& command_info(Command command);
const Command* command_named(std::string_view word);  // nullptr: none

// A role says what an option's value changes. A case is identified (identity.h) by the values that
// decide its tokens and counters; some of them matter to a part of the methods only.
enum class Role : std::uint8_t {
  kDecides,           // tokens and counters of every method
  kDecidesProposed,   // of methods with a proposer, all but ar
  kDecidesInner,      // of methods with an inner level
  kDecidesSelected,   // of methods with a retrieval cache
  kDecidesChunks,     // of methods with a retrieval cache, or a drafter whose cache has chunks
  kDecidesBudget,     // of methods with a retrieval cache or a streaming cache of the target
  kDecidesOwnDrafts,  // of methods with a small or quantised cache of the target
  kDecidesQuantised,  // of methods with a quantised cache
  kDecidesDrafted,    // of methods with a drafter
  kDecidesLookedUp,   // of methods that look up what they propose
  kNames,             // names something whose digest decides: a model, a data set, a device
  kMeasures,          // what is measured, how often and with what memory, threads and time
  kRecords,           // what a result holds beside figures
  kOutputs,           // what is written, and where; the result of a case is the same with any value
};

// An OptionValue reads and shows one option (option_kinds.h has the usual kinds).
struct OptionValue {
  std::string expected;  // what a good value is, for help and errors: "an integer in 1..31"
  std::function<bool(RunConfig&, std::string_view)> set;  // false: the text is no good value
  std::function<ParamValue(const RunConfig&)> get;        // monostate: not set
  bool lists = false;  // a text may stand for several values (axes.h): none of them has a comma
  std::vector<std::string> words = {};  // values that are names, for "did you mean"
  bool words_listed = false;            // a value is a comma list of them, each once
  // Reads an integer as this option writes it, for ranges.
  std::optional<std::int64_t> (*integer)(std::string_view) = parse_integer;
};

struct Option {
  std::string_view name;                  // kebab-case, without dashes
  std::vector<std::string_view> aliases;  // one letter: a short option
  std::string_view placeholder;           // "N|auto"; empty: a flag
  std::string_view unit;                  // "tokens"; empty: none
  std::string help;
  unsigned commands = 0;
  Role role = Role::kOutputs;
  OptionValue value;            // no `set`: the command line's own (--help, --config)
  std::string unset = "none";   // the default in the help text where no value is set
  std::string_view group = "";  // an option_groups() name; option_table() fills it in

  bool is_flag() const { return placeholder.empty(); }
  // Returns whether `run` and `sweep` take several values of it. What all cases share has one.
  bool sweeps() const { return value.lists && role != Role::kOutputs; }
};
const std::vector<Option>& option_table();

// Options that --help shows together, in the order of the table.
struct OptionGroup {
  std::string_view name;   // "sampling", of --help sampling
  std::string_view title;  // "Sampling and acceptance"
  std::string_view about;  // one line
};
const std::vector<OptionGroup>& option_groups();

// A value as it was given; flags hold "true" or "false". `where` begins messages about it: empty
// for the command line, "run.toml:3: " for a file.
struct Given {
  std::string value;
  std::string where;
  // NOLINTBEGIN(google-explicit-constructor): {{"prefill", "100"}}
  Given(std::string v, std::string w = {}) : value(std::move(v)), where(std::move(w)) {}
  Given(const char* v) : value(v) {}
  // NOLINTEND(google-explicit-constructor)
};
using GivenOptions = std::map<std::string, Given, std::less<>>;  // by name
// Stores one value. Throws Error(kUsage) "--name: expected ..., found ...". A name given before:
// "expected once, found 2 times".
void give(GivenOptions& given, const Option& option, Given value);

// Fewest tokens that --budget may be where a method has a cache of that size.
inline constexpr std::int64_t kMinBudget = 16;
// Defaults, then the given values, then the checks that need more than one option. Throws
// Error(kUsage).
RunConfig make_config(Command command, const GivenOptions& given);

// The entry of option_table() that `command` knows by this name or alias ('_' counts as '-'), both
// without dashes; nullptr: none.
const Option* find_option(Command command, std::string_view name);
// "did you mean DASHES<name>?" for the known name that is closest to `name`, or the one that other
// tools of the field call so; without any: "expected one of those --help lists".
std::string suggest_option(Command command, std::string_view name, std::string_view dashes);
// "; did you mean <value>?" of a text that is no value of `option`, or nothing.
std::string suggest_value(const Option& option, std::string_view text);
// Throws Error(kUsage) for a text that is no value of `option`: "--name: expected ..., found ...",
// which of a list names the element that is wrong, and "did you mean ...?" where a value is near.
[[noreturn]] void refuse_value(const Option& option, const Given& given,
                               std::string_view note = {});

}  // namespace triforce
