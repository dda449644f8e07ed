// Configuration files, numbers with suffixes, and the words that are no options.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "core/parse_number.h"
#include "options/parse_support.h"

namespace triforce {
namespace {

class ConfigFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  // What reading the file ends with.
  static Error input_error(const std::string& path) {
    try {
      parse({"--config", path});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kBadInput) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
      return e;
    }
    ADD_FAILURE() << path;
    return {ExitCode::kOk, "", ""};
  }
  void TearDown() override { std::remove(path_.c_str()); }
  std::string path_ = ::testing::TempDir() + "triforce_options_test.toml";
};

TEST_F(ConfigFile, GivesOptionsThatTheCommandLineOverrides) {
  const std::string file = write(
      "# a comment\ngamma = 9\ntop_p = 0.7\nmethod = [\"triforce\", \"draft\"]\n"
      "no-baseline = true\ndataset = \"my data.txt\"\n");
  const RunConfig c = parse({"--config", file, "--gamma", "3"});
  EXPECT_EQ(c.speculation.gamma, 3);
  EXPECT_FLOAT_EQ(c.speculation.sampling.top_p, .7F);
  EXPECT_EQ(c.methods, (std::vector<Method>{Method::kTriForce, Method::kDraft}));
  EXPECT_EQ(c.dataset, "my data.txt");
}

TEST_F(ConfigFile, IsToml) {
  const std::string file = write(
      "\xEF\xBB\xBF# all of it valid TOML 1.0\nprefill = 1_024\nseed = 0xff\nbudget = "
      "0b10000000000\n"
      "target = \"\"\"\nllama-7B-128K\"\"\"\ndraft = 'llama-68M'\ntemp = 5e-1\n"
      "\"json\" = \"\\u0061.json\"\ncsv = '''b\\.csv'''\nmethod = [\n  \"ar\", # first\n  "
      "\"draft\",\n]\n");
  const RunConfig c = parse({"--config", file});
  EXPECT_EQ(c.prefill, 1024);
  EXPECT_EQ(c.seed, 255U);
  EXPECT_EQ(c.speculation.budget, 1024);
  EXPECT_EQ(c.target, "llama-7B-128K");
  EXPECT_EQ(c.draft, "llama-68M");
  EXPECT_FLOAT_EQ(c.speculation.sampling.temperature, .5F);
  EXPECT_EQ(c.json_file, "a.json");
  EXPECT_EQ(c.csv_file, "b\\.csv");
  EXPECT_EQ(c.methods, (std::vector<Method>{Method::kAutoregressive, Method::kDraft}));
}

TEST_F(ConfigFile, MistakesNameFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\n\ngamma = 99\n", ":3: --gamma: expected an integer in 1..63 or auto, found \"99\""},
      {"gamma = 3.0\n", ":1: --gamma: expected an integer in 1..63 or auto, found \"3.0\""},
      {"gamma = true\n", ":1: --gamma: expected an integer in 1..63 or auto, found \"true\""},
      {"seed = \"1,x\"\n",
       ":1: --seed: expected an integer in 0..4611686018427387904, or a list of such, found "
       "\"x\""},
      {"seed = 1\ngama = 9\n", ":2: unknown option \"gama\"; did you mean gamma?"},
      {"n-gen = 9\n", ":1: unknown option \"n-gen\"; did you mean gen-len?"},
      {"p = 9\n", ":1: unknown option \"p\"; expected one of those --help lists"},
      {"temp = 0\n\ntemperature = 0\n", ":3: --temp: expected once, found 2 times"},
      {"gen_len = 9\ngen-len = 9\n", ":2: --gen-len: expected once, found 2 times"},
      {"seed = 1\n[run]\ngamma = 9\n",
       ":2: expected options without sections, found section \"run\""},
      {"a.b = 9\n", ":1: expected options without sections, found section \"a\""},
      {"[[x]]\n", ":1: expected options without sections, found section \"x\""},
      {"help = true\n", ":1: help: expected on the command line alone, found in a file"},
      {"config = 'x'\n", ":1: config: expected on the command line alone, found in a file"},
      {"baseline = 3\n", ":1: --baseline: expected true or false, found \"3\""},
      {"json = ''\n", ":1: --json: expected a file name, found \"\""},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_EQ(usage_error({"--config", write(text)}), path_ + message);
  }
  for (const char* value : {"2020-01-01", "07:32:00", "{a = 1}", "[['ar']]", "[2020-01-01]"}) {
    const std::string message =
        usage_error({"--config", write(fmt::format("method = {}\n", value))});
    EXPECT_EQ(message.find(path_ + ":1: "), 0U) << message;
  }
}

TEST_F(ConfigFile, WhatIsNotTomlIsRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"gamma = 1\ngamma = 2\n", ":2: "},
      {"method = [\"ar\",\n", ":"},
      {"method = [\"ar\", \"draft\"\nseed = 3\n", ":2: "},
      {"seed = 1\ndataset = \"a\n", ":2: "},
      {"seed 1\n", ":1: "},
      {"seed = 01\n", ":1: "},
      {std::string("\xFF\xFEg\0", 4), ":1: "},
      {std::string("seed = 1\0", 9), ":1: "},
      {"seed = 1 # \xC3\x28\n", ":1: "},
  };
  for (const auto& [text, where] : cases) {
    const Error e = input_error(write(text));
    EXPECT_EQ(e.kind(), "InvalidToml");
    EXPECT_EQ(std::string(e.what()).find(path_ + where), 0U) << e.what();
  }
}

TEST_F(ConfigFile, DepthAndSizeAreBounded) {
  std::string deep = "[a";
  for (int i = 0; i < 300; ++i) deep += ".a";
  EXPECT_EQ(input_error(write("seed = 1\n" + deep + "]\n")).kind(), "LimitExceeded");
  std::string nested = "seed = ";
  for (int i = 0; i < 100'000; ++i) nested += "[{a=";
  EXPECT_EQ(input_error(write(nested)).kind(), "InvalidToml");
  EXPECT_EQ(input_error(write(std::string((1 << 20) + 1, '\n'))).kind(), "LimitExceeded");
  EXPECT_EQ(input_error(write("")).kind(), "InvalidToml");  // also what /proc calls empty
  EXPECT_NO_THROW(parse({"--config", write(std::string(1 << 20, '\n'))}));
}

TEST_F(ConfigFile, MustBeAFileThatCanBeRead) {
  EXPECT_EQ(input_error(path_ + ".absent").kind(), "FileNotFound");
  EXPECT_EQ(input_error(::testing::TempDir()).kind(), "NotRegularFile");
  EXPECT_EQ(input_error("/dev/zero").kind(), "NotRegularFile");
  EXPECT_EQ(usage_error({"--config", ""}), "--config: expected a file name, found \"\"");
  EXPECT_EQ(usage_error({"--config", path_, "--config", path_}),
            "--config: expected once, found 2 times");
}

TEST(OptionValues, Numbers) {
  EXPECT_EQ(parse_integer("8k"), 8192);
  EXPECT_EQ(parse_integer("8K"), 8192);
  EXPECT_EQ(parse_integer("-3"), -3);
  EXPECT_EQ(parse_integer("9223372036854775807"), INT64_MAX);
  for (const char* bad : {"", "k", "8kk", "8 k", "+8", "8.0", "0x8", "9223372036854775807k"}) {
    EXPECT_EQ(parse_integer(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(parse_real("1e-3"), 1e-3);
  for (const char* bad : {"", "inf", "nan", "1e400", "1,5", "0x1p3", " 1"}) {
    EXPECT_EQ(parse_real(bad), std::nullopt) << bad;
  }
}

TEST(OptionValues, Bytes) {
  const std::int64_t gib = std::int64_t{1} << 30;
  EXPECT_EQ(parse_bytes("123"), 123);
  EXPECT_EQ(parse_bytes("123B"), 123);
  EXPECT_EQ(parse_bytes("2k"), 2048);
  EXPECT_EQ(parse_bytes("2KB"), 2000);
  EXPECT_EQ(parse_bytes("2KiB"), 2048);
  EXPECT_EQ(parse_bytes("3M"), std::int64_t{3} << 20);
  EXPECT_EQ(parse_bytes("4G"), 4 * gib);
  EXPECT_EQ(parse_bytes("4GB"), 4'000'000'000);
  EXPECT_EQ(parse_bytes("1TiB"), 1024 * gib);
  for (const char* bad : {"", "G", "-1", "4X", "4GiX", "4GBB", "1.5G", "9223372036854775807k"}) {
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
  }
}

TEST(CommandLineActions, HelpAndVersion) {
  using Action = CommandLine::Action;
  EXPECT_EQ(parse_command_line({"--help"}).action, Action::kHelp);
  EXPECT_EQ(parse_command_line({"plan", "-h"}).action, Action::kHelp);
  EXPECT_EQ(parse_command_line({"plan", "-h"}).command, kPlan);
  EXPECT_EQ(parse_command_line({"--version"}).action, Action::kVersion);
  EXPECT_EQ(parse_command_line({"help"}).action, Action::kHelp);
  EXPECT_FALSE(parse_command_line({"help"}).named);
  EXPECT_EQ(parse_command_line({"help", "plan"}).action, Action::kHelp);
  EXPECT_EQ(parse_command_line({"help", "plan"}).command, kPlan);
  EXPECT_EQ(usage_error({"help", "plam"}),
            "--help: expected a command or one of all, models, method, sampling, data, measuring, "
            "sweeps, output, general, found \"plam\"; did you mean plan?");
  EXPECT_EQ(usage_error({"--help=x"}).find("--help: expected a command or one of all, "), 0U);
  EXPECT_EQ(usage_error({"help", "plan", "data", "x"}),
            "help: expected a command or a group of options, found \"x\"");
  EXPECT_EQ(usage_error({"--version=x"}), "--version: expected true or false, found \"x\"");
  EXPECT_EQ(parse_command_line({"--version=false"}).action, Action::kExecute);
  EXPECT_EQ(parse_command_line({"inspect", "a.safetensors"}).config.operands,
            std::vector<std::string>{"a.safetensors"});
  EXPECT_NE(usage_error({"inspect"}).find("inspect: expected"), std::string::npos);
  EXPECT_EQ(usage_error({"compare", "a.json"}),
            "compare: expected two result files, of --json or --jsonl, found \"a.json\" alone");
  // A wrong option is said before a missing operand.
  EXPECT_EQ(usage_error({"compare", "--runs", "0"}).find("--runs: expected"), 0U);
  EXPECT_EQ(parse_command_line({"export", "a", "b", "[c]"}).config.operands,
            (std::vector<std::string>{"a", "b", "[c]"}));
}

TEST(CommandLineActions, ASweepOfNothingListsTheRecipes) {
  using Action = CommandLine::Action;
  EXPECT_EQ(parse_command_line({"sweep"}).action, Action::kListRecipes);
  EXPECT_EQ(parse_command_line({"sweep", "--list"}).action, Action::kListRecipes);
  EXPECT_EQ(parse_command_line({"sweep", "--list", "--machine", "h100"}).config.machine, "h100");
  EXPECT_EQ(parse_command_line({"sweep", "tiny-fig1"}).action, Action::kExecute);
  EXPECT_EQ(parse_command_line({"sweep", "--gamma", "3"}).action, Action::kExecute);
  EXPECT_EQ(parse_command_line({}).action, Action::kExecute);
}

TEST(CommandLineActions, AResultAloneIsToBeShown) {
  const std::string path = ::testing::TempDir() + "triforce_shown.json";
  EXPECT_EQ(usage_error({path}).find("did you mean show"), std::string::npos);
  std::ofstream(path) << "{}";
  EXPECT_EQ(usage_error({path}),
            "unknown command \"" + path + "\"; did you mean show " + path + "?");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace triforce
