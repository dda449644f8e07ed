// The help text is read back: what it says about defaults is what the parser does without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "options/arguments.h"
#include "options/parse_support.h"
#include "report/golden.h"

namespace triforce {
namespace {

struct PrintedDefault {
  std::string name, value, builtin_value;  // the last: where it differs for the built-in pair
};

// "  -p, --prefill N    (default: 124928; built-in pair: 15872)", continued in lines of 34 spaces.
std::vector<PrintedDefault> printed_defaults(const std::string& help) {
  const std::string text = std::regex_replace(help, std::regex("\n {34}"), " ");
  const std::regex row("\n  (?:-[a-z], )?--([a-z-]+)(?: [^ ]+)? +\\(default: ([^\n]*)\\)(?=\n)");
  std::vector<PrintedDefault> rows;
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it) {
    PrintedDefault d{(*it)[1], (*it)[2], (*it)[2]};
    const std::string mark = "; built-in pair: ";
    if (const std::size_t at = d.value.find(mark); at != std::string::npos) {
      d.builtin_value = d.value.substr(at + mark.size());
      d.value.resize(at);
    }
    rows.push_back(d);
  }
  return rows;
}

// Everything that options can set, in text.
std::string all_values(const CommandLine& line) {
  std::string out;
  for (const Option& o : option_table()) {
    if (o.value.get == nullptr) continue;
    out += fmt::format("{}={}\n", o.name, to_text(o.value.get(line.config)));
  }
  return out;
}

std::string joined(std::vector<std::string> args, const std::vector<std::string>& more) {
  args.insert(args.end(), more.begin(), more.end());
  return all_values(parse_command_line(args));
}

TEST(Help, APrintedDefaultChangesNothing) {
  std::size_t values = 0;
  const std::string empty = ::testing::TempDir() + "triforce_empty.toml";
  std::ofstream(empty) << "# nothing\n";
  for (const Command command : every_command()) {
    std::vector<std::string> builtin = {std::string(command_info(command).name)};
    for (std::size_t i = 0; i < command_info(command).operands.count.first; ++i) {
      builtin.emplace_back("PATH");
    }
    if (command == kSweep) builtin.insert(builtin.end(), {"--config", empty});  // alone it lists
    std::vector<std::string> other = builtin;
    if (find_option(command, "target") != nullptr) other.insert(other.end(), {"--target", "any"});
    for (const PrintedDefault& d : printed_defaults(help_text(command, "all", true))) {
      if (d.value == "none" || d.value.find(' ') != std::string::npos) {  // words: nothing is set
        const Option* o = find_option(command, d.name);
        ASSERT_NE(o, nullptr) << d.name;
        const CommandLine line = parse_command_line(builtin);
        EXPECT_EQ(to_text(o->value.get(line.config)), "") << d.name;
        continue;
      }
      const std::string option = "--" + d.name + "=";
      EXPECT_EQ(joined(other, {option + d.value}), joined(other, {})) << d.name;
      EXPECT_EQ(joined(builtin, {option + d.builtin_value}), joined(builtin, {})) << d.name;
      ++values;
    }
  }
  EXPECT_GT(values, 70U);
}

// All options but those of the command line itself have one.
TEST(Help, EveryOptionHasADefault) {
  for (const Command command : every_command()) {
    std::size_t options = 0;
    for (const Option& o : option_table()) {
      if ((o.commands & command) != 0 && o.group != "general") ++options;
    }
    EXPECT_EQ(printed_defaults(help_text(command, "all", true)).size(), options);
  }
}

TEST(Help, KnowsTheChunkOfPerplexity) {
  for (const PrintedDefault& d : printed_defaults(help_text(kPerplexity, "all", true))) {
    if (d.name == "chunk") {
      EXPECT_EQ(d.value, fmt::format("{}", kPrefillChunk));
    }
    if (d.name == "prefill") {
      EXPECT_EQ(d.value, "124928");
      EXPECT_EQ(d.builtin_value, "15872");
    }
  }
}

void expect_fits_a_terminal(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;
  }
}

// The groups that a command has options of.
std::vector<std::string> groups_of(Command command) {
  std::vector<std::string> groups;
  for (const Option& o : option_table()) {
    if ((o.commands & command) == 0) continue;
    if (groups.empty() || groups.back() != o.group) groups.emplace_back(o.group);
  }
  return groups;
}

TEST(Help, FitsATerminal) {
  expect_fits_a_terminal(help_text(kRun, "", false));
  for (const Command command : every_command()) {
    for (const char* topic : {"", "all"}) expect_fits_a_terminal(help_text(command, topic, true));
    for (const std::string& group : groups_of(command)) {
      expect_fits_a_terminal(help_text(command, group, true));
    }
  }
}

std::ptrdiff_t lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

TEST(Help, ComesInScreens) {
  constexpr std::ptrdiff_t kTwoScreens = 48;
  EXPECT_LE(lines_of(help_text(kRun, "", false)), kTwoScreens + 6);  // with the list of commands
  for (const Command command : every_command()) {
    EXPECT_LE(lines_of(help_text(command, "", true)), kTwoScreens) << command_info(command).name;
  }
}

// All groups together are all options, each once.
TEST(Help, EveryOptionIsInAGroup) {
  const std::regex name("\n  (?:-[a-z], )*--([a-z-]+)");
  const auto names_in = [&](const std::string& text) {
    std::multiset<std::string> names;
    for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) {
      names.insert((*it)[1]);
    }
    return names;
  };
  for (const Command command : every_command()) {
    std::string groups;
    for (const std::string& group : groups_of(command)) {
      groups += help_text(command, group, true);
    }
    std::multiset<std::string> expected;
    for (const Option& o : option_table()) {
      if ((o.commands & command) != 0) expected.insert(std::string(o.name));
    }
    EXPECT_EQ(names_in(groups), expected) << command_info(command).name;
    EXPECT_EQ(names_in(help_text(command, "all", true)), expected) << command_info(command).name;
  }
}

TEST(Help, NamesTheExitCodesThatACommandHas) {
  const auto codes = [](Command command) {
    const std::string help = help_text(command, "", true);
    return help.substr(help.find("Exit codes: "));
  };
  EXPECT_NE(codes(kRun).find("6 a rank"), std::string::npos);
  EXPECT_EQ(codes(kRun).find("1 regression"), std::string::npos);
  EXPECT_NE(codes(kCompare).find("1 regression"), std::string::npos);
  EXPECT_EQ(codes(kListDevices).find("7 numeric"), std::string::npos);
}

TEST(Help, OfACommandAGroupOrAll) {
  struct Case {
    std::vector<std::string> args;
    Command command;
    bool named;
    std::string topic;
  };
  for (const Case& c : std::vector<Case>{{{"--help"}, kRun, false, ""},
                                         {{"help"}, kRun, false, ""},
                                         {{"--help", "compare"}, kCompare, true, ""},
                                         {{"compare", "--help"}, kCompare, true, ""},
                                         {{"help", "compare"}, kCompare, true, ""},
                                         {{"--help", "all"}, kRun, false, "all"},
                                         {{"-h", "output"}, kRun, false, "output"},
                                         {{"plan", "-h", "data"}, kPlan, true, "data"},
                                         {{"--help", "plan", "data"}, kPlan, true, "data"},
                                         {{"help", "plan", "all"}, kPlan, true, "all"},
                                         {{"sweep", "tiny-fig1", "--help"}, kSweep, true, ""},
                                         {{"--prefill", "2k", "--help"}, kRun, false, ""}}) {
    const CommandLine line = parse_command_line(c.args);
    const std::string said = fmt::format("{}", fmt::join(c.args, " "));
    EXPECT_EQ(line.action, CommandLine::Action::kHelp) << said;
    EXPECT_EQ(line.command, c.command) << said;
    EXPECT_EQ(line.named, c.named) << said;
    EXPECT_EQ(line.topic, c.topic) << said;
  }
  EXPECT_EQ(usage_error({"plan", "--help", "dta"}),
            "--help: expected one of all, models, method, sampling, data, measuring, output, "
            "general, found \"dta\"; did you mean data?");
  EXPECT_EQ(usage_error({"inspect", "--help", "sampling"}),
            "--help: expected one of all, output, general, found \"sampling\"");
}

TEST(Help, ExamplesAreCommandLines) {
  for (const CommandInfo& info : command_table()) {
    EXPECT_FALSE(info.examples.empty()) << info.name;
    for (const std::string_view example : info.examples) {
      std::istringstream words{std::string(example)};
      std::vector<std::string> args;
      for (std::string word; words >> word;) args.push_back(word);
      EXPECT_EQ(parse_command_line(args).command, info.command) << example;
    }
  }
}

TEST(Help, GoldenFirstScreens) {
  std::string help = help_text(kRun, "", false);
  for (const Command command : every_command()) {
    help += "\n" + std::string(80, '-') + "\n" + help_text(command, "", true);
  }
  expect_golden(help, "tests/options/golden/help.txt");
}

// Each option once, so that a new one is one entry here: a command's are left out where it says of
// an option what an earlier command does, or where help.txt has all of its options.
TEST(Help, GoldenOptions) {
  const std::regex entry("  -[^\n]*\n(?: {6}[^\n]*\n)*");
  std::string help;
  for (const OptionGroup& group : option_groups()) {
    std::set<std::string> seen;
    for (const CommandInfo& info : command_table()) {
      const std::vector<std::string> groups = groups_of(info.command);
      if (info.usual.empty() || std::count(groups.begin(), groups.end(), group.name) == 0) continue;
      const std::string text = help_text(info.command, group.name, true);
      if (seen.empty()) help += text.substr(0, text.find('\n') + 1);
      for (std::sregex_iterator it(text.begin(), text.end(), entry), end; it != end; ++it) {
        if (seen.insert(it->str()).second) help += it->str();
      }
    }
  }
  expect_golden(help, "tests/options/golden/options.txt");
}

TEST(Echo, HasTheOptionsOfRun) {
  std::string names;
  const std::vector<Param> params = echo_params(parse({"--gamma", "auto", "--top_p", ".85"}));
  std::map<std::string, std::string> by_name;
  for (const auto& [name, value] : params) {
    names += name + ' ';
    by_name[name] = to_text(value);
  }
  EXPECT_EQ(
      names,
      "target draft rope_scaling random_weights random_draft dtype device threads cpu_isa on_chip "
      "kv_offload offload_attention hybrid_split tp comm_timeout method baseline no_baseline "
      "prefill gen_len batch gamma inner_gamma tree tree_tokens inner_tree "
      "budget chunk_size dense_layers "
      "draft_cache_budget draft_cache lookup draft_kv draft_weights rebuild selection "
      "key_rank outlier_chunks temp top_p top_k seed "
      "acceptance "
      "inner_rule "
      "ignore_eos synthetic_acceptance dataset text_field needle_depth prompts turn stride "
      "repetitions warmup "
      "measure_recovery max_noise price powercap "
      "timeout memory_limit resume shard merge fail_fast list yes output_format json jsonl csv "
      "record progress "
      "details verbose ");
  EXPECT_EQ(by_name["gamma"], "auto");
  EXPECT_EQ(by_name["top_p"], "0.85");
  EXPECT_EQ(by_name["gen_len"], "256");
  EXPECT_EQ(by_name["timeout"], "");
  EXPECT_EQ(by_name["method"], "ar,triforce");
}

}  // namespace
}  // namespace triforce
