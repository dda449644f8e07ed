// Options with several values: which texts are lists and ranges, and the cases that come of them.
#include <gtest/gtest.h>

#include "options/axes.h"
#include "options/parse_support.h"

namespace triforce {
namespace {

std::string joined(const std::vector<std::string>& values) {
  return fmt::format("{}", fmt::join(values, " "));
}
std::string expanded(std::string_view name, const std::string& text) {
  return joined(expand_values(*find_option(kRun, name), text, kMaxCases));
}

TEST(Axes, ListsAndRanges) {
  EXPECT_EQ(expanded("budget", "512"), "512");
  EXPECT_EQ(expanded("budget", "512,1k,4096"), "512 1k 4096");
  EXPECT_EQ(expanded("budget", "1k-16k*2"), "1024 2048 4096 8192 16384");
  EXPECT_EQ(expanded("budget", "16,1k-3k+1k,8k"), "16 1024 2048 3072 8k");
  EXPECT_EQ(expanded("gamma", "1-8"), "1 2 3 4 5 6 7 8");
  EXPECT_EQ(expanded("gamma", "1-8+3"), "1 4 7");
  EXPECT_EQ(expanded("gamma", "auto,6"), "auto 6");
  EXPECT_EQ(expanded("gamma", "5-5"), "5");
  EXPECT_EQ(expanded("temp", "0-1+0.2"), "0 0.2 0.4 0.6 0.8 1");
  EXPECT_EQ(expanded("temp", "0.1-10*10"), "0.1 1 10");
  EXPECT_EQ(expanded("temp", "1e-3,1e-2"), "1e-3 1e-2");
  EXPECT_EQ(expanded("temp", "1e-3-1e-1*10"), "0.001 0.01 0.1");
  EXPECT_EQ(expanded("selection", "mean-key,attention"), "mean-key attention");
  EXPECT_EQ(expanded("memory-limit", "1G,512MiB,3000"), "1G 512MiB 3000");
  EXPECT_EQ(expanded("memory-limit", "1k-4KiB*2"), "1024 2048 4096");
  EXPECT_EQ(expanded("memory-limit", "1KB-2KB+500"), "1000 1500 2000");
  EXPECT_EQ(expanded("rebuild", "never,every:32,adaptive:0.5"), "never every:32 adaptive:0.5");
  EXPECT_EQ(expanded("dataset", "ruler-vt,a-1.txt"), "ruler-vt a-1.txt");
  // Names of other files and lists of methods are one value.
  EXPECT_EQ(expanded("target", "a,b"), "a,b");
  EXPECT_EQ(expanded("method", "ar,triforce"), "ar,triforce");
  EXPECT_EQ(expanded("json", "a-1+2"), "a-1+2");
}

TEST(Axes, RangesThatAreNone) {
  for (const char* text : {"8-1", "8-1+1", "1-8+0", "1-8*1", "0-8*2", "1k-512*2"}) {
    EXPECT_NE(usage_error({"--budget", text}).find("--budget: expected a range"), std::string::npos)
        << text;
  }
  for (const char* text : {"512,", ",512", "512,,1024", "512,x", "1-", "-8", "1-8+", "1-8-2"}) {
    EXPECT_NE(usage_error({"--budget", text}).find("--budget: expected an integer in"),
              std::string::npos)
        << text;
  }
  EXPECT_EQ(usage_error({"--budget", "512,1024,512"}),
            "--budget: expected each value once, found \"512\" twice");
}

TEST(Axes, MoreCasesThanAnyoneMeansNeedYes) {
  EXPECT_EQ(usage_error({"--seed", "1-10001"}),
            "--seed: expected at most 10000 values without --yes, found more");
  EXPECT_EQ(usage_error({"--seed", "1-1000", "--gamma", "1-11"}),
            "expected at most 10000 cases without --yes, found 11000");
  EXPECT_EQ(parse_command_line({"--seed", "1-10000"}).cases.size(), 10000U);
  EXPECT_EQ(parse_command_line({"--seed", "1-20000", "--yes"}).cases.size(), 20000U);
  EXPECT_EQ(usage_error({"--seed", "1-1000001", "--yes"}),
            "--seed: expected at most 1000000 values, found more");
  EXPECT_EQ(usage_error({"--seed", "1-1001", "--prompts", "1-1000", "--yes"}),
            "expected at most 1000000 cases, found 1001000");
}

// Whether numbers are what an option takes, by what its messages say of it.
bool is_numeric(const Option& o) {
  const std::string& e = o.value.expected;
  return e.starts_with("an integer") || e.starts_with("a number") ||
         e.starts_with("0 or a number") || e.starts_with("a byte count");
}

struct TwoValues {
  const char *low, *high, *step;
};
// Two values that a numeric option takes.
TwoValues two_values(const Option& o) {
  RunConfig c;
  for (const TwoValues& v : {TwoValues{"1", "2", "1"}, TwoValues{"2", "3", "1"},
                             TwoValues{"0.25", "0.5", "0.25"}, TwoValues{"1.5", "2.5", "1"}}) {
    if (o.value.set(c, v.low) && o.value.set(c, v.high)) return v;
  }
  ADD_FAILURE() << "no two values for " << o.name;
  return {"1", "1", "1"};
}

// Every numeric option is an axis where cases are measured; any other command says that it takes
// one value, and where.
TEST(Axes, EveryNumericOptionTakesAListOrSaysWhyNot) {
  int axes = 0, others = 0;
  for (const Option& o : option_table()) {
    if (!is_numeric(o)) continue;
    const TwoValues v = two_values(o);
    const std::string name = "--" + std::string(o.name), list = fmt::format("{},{}", v.low, v.high);
    const std::string range = fmt::format("{}-{}+{}", v.low, v.high, v.step);
    for (const Command command : every_command()) {
      if ((o.commands & command) == 0) continue;
      const std::string word(command_info(command).name);
      if (command == kRun || command == kSweep) {
        for (const std::string& text : {list, range}) {
          EXPECT_EQ(joined(expand_values(o, text, kMaxCases)), fmt::format("{} {}", v.low, v.high))
              << name << ' ' << text;
        }
        ++axes;
      } else {
        const std::string why = usage_error({word, name, list});
        EXPECT_NE(why.find(word + " takes one value, run and sweep take lists"), std::string::npos)
            << word << ' ' << name << ": " << why;
        ++others;
      }
    }
  }
  EXPECT_GT(axes, 40);
  EXPECT_GT(others, 15);
}

TEST(Axes, CasesAreTheCombinations) {
  const CommandLine line = parse_command_line(
      {"--temp", "0,1", "--budget", "512,600,1000", "--gen-len", "9", "--chunk-size", "8"});
  ASSERT_EQ(line.cases.size(), 6U);
  const SweepCase& second = line.cases[1];
  ASSERT_EQ(second.axes.size(), 2U);  // budget comes first in the table
  EXPECT_EQ(second.axes[0], (std::pair<std::string, std::string>("budget", "512")));
  EXPECT_EQ(second.axes[1], (std::pair<std::string, std::string>("temp", "1")));
  ASSERT_TRUE(second.config.has_value());
  EXPECT_EQ(second.config->speculation.budget, 512);
  EXPECT_EQ(second.config->speculation.sampling.temperature, 1);
  EXPECT_EQ(second.config->gen_len, 9);
  EXPECT_TRUE(line.cases[2].config && line.cases[4].config);
  // What one case's command line is told, its row is told.
  const CommandLine odd = parse_command_line({"--budget", "512,601"});
  EXPECT_FALSE(odd.cases[1].config);
  EXPECT_EQ(odd.cases[1].refusal, usage_error({"--budget", "601"}));
  EXPECT_EQ(usage_error({"--budget", "601,603"}), usage_error({"--budget", "601"}));
  EXPECT_TRUE(parse_command_line({"--budget", "512"}).cases.empty());
  EXPECT_EQ(parse_command_line({"sweep", "--budget", "512"}).cases.size(), 1U);
  EXPECT_EQ(parse_command_line({"--resume", "j"}).cases.size(), 1U);
  EXPECT_EQ(parse_command_line({"--list"}).cases.size(), 1U);
}

}  // namespace
}  // namespace triforce
