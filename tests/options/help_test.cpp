// The help text is read back: what it says about defaults is what the parser does without them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "options/parse_support.h"

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
std::string all_values(const RunConfig& c) {
  std::string out;
  for (const Option& o : option_table()) {
    if (o.value.get != nullptr) out += fmt::format("{}={}\n", o.name, to_text(o.value.get(c)));
  }
  return out;
}

std::string joined(std::vector<std::string> args, const std::vector<std::string>& more) {
  args.insert(args.end(), more.begin(), more.end());
  return all_values(parse(args));
}

TEST(Help, APrintedDefaultChangesNothing) {
  std::size_t values = 0;
  for (const Command command : every_command()) {
    std::vector<std::string> builtin = {std::string(command_info(command).name)};
    for (std::size_t i = 0; i < command_info(command).operands.count.first; ++i) {
      builtin.emplace_back("PATH");
    }
    std::vector<std::string> other = builtin;
    if (find_option(command, "target") != nullptr) other.insert(other.end(), {"--target", "any"});
    for (const PrintedDefault& d : printed_defaults(help_text(command, false))) {
      if (d.value == "none" || d.value.find(' ') != std::string::npos) {  // words: nothing is set
        const Option* o = find_option(command, d.name);
        ASSERT_NE(o, nullptr) << d.name;
        EXPECT_EQ(to_text(o->value.get(parse(builtin))), "") << d.name;
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
      if ((o.commands & command) != 0 && o.group != "General") ++options;
    }
    EXPECT_EQ(printed_defaults(help_text(command, false)).size(), options);
  }
}

TEST(Help, KnowsTheChunkOfPerplexity) {
  for (const PrintedDefault& d : printed_defaults(help_text(kPerplexity, false))) {
    if (d.name == "chunk") {
      EXPECT_EQ(d.value, fmt::format("{}", kPrefillChunk));
    }
    if (d.name == "prefill") {
      EXPECT_EQ(d.value, "124928");
      EXPECT_EQ(d.builtin_value, "15872");
    }
  }
}

TEST(Help, FitsATerminal) {
  for (const Command command : every_command()) {
    std::istringstream lines(help_text(command, true));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80U) << line;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
      for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;
    }
  }
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

// The golden text was read line by line when it was written; a wanted change is read in the diff.
TEST(Help, Golden) {
  std::string help = help_text(kRun, true);
  for (const Command command : every_command())
    help += "\n" + std::string(80, '-') + "\n" + help_text(command, false);
  const auto golden = std::filesystem::path(TF_SOURCE_DIR) / "tests/options/golden/help.txt";
  std::ostringstream expected;
  expected << std::ifstream(golden).rdbuf();
  if (help == expected.str()) return;
  std::ofstream("help.txt") << help;
  ADD_FAILURE() << "differs from " << golden << "; see "
                << std::filesystem::current_path() / "help.txt";
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
      "target draft random_weights random_draft dtype device threads cpu_isa on_chip "
      "kv_offload offload_attention hybrid_split tp comm_timeout method baseline no_baseline "
      "prefill gen_len gamma inner_gamma "
      "budget chunk_size dense_layers "
      "draft_cache_budget draft_cache rebuild selection temp top_p top_k seed acceptance "
      "inner_rule "
      "ignore_eos synthetic_acceptance dataset text_field needle_depth prompts repetitions warmup "
      "measure_recovery max_noise "
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
