// Configuration files, numbers with suffixes, and the words that are no options.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "app/option_values.h"
#include "app/parse_support.h"

namespace triforce {
namespace {

class ConfigFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
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
  EXPECT_FLOAT_EQ(c.speculation.law.top_p, .7F);
  EXPECT_EQ(c.methods, (std::vector<Method>{Method::kTriForce, Method::kDraft}));
  EXPECT_EQ(c.dataset, "my data.txt");
}

TEST_F(ConfigFile, IsCheckedLikeTheCommandLine) {
  EXPECT_EQ(usage_error({"--config", write("gamma = 99\n")}),
            "--gamma: expected an integer in 1..31 or auto, found \"99\"");
  EXPECT_EQ(usage_error({"--config", write("gama = 9\n")}),
            "--config: unknown option \"--gama\"; did you mean --gamma?");
  EXPECT_NE(usage_error({"--config", write("[run]\ngamma = 9\n")}).find("section"),
            std::string::npos);
}

TEST_F(ConfigFile, MustBeThere) {
  try {
    parse({"--config", path_ + ".absent"});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadInput);
  }
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
  EXPECT_EQ(parse_command_line({"inspect", "a.safetensors"}).config.inspect_path, "a.safetensors");
  EXPECT_NE(usage_error({"inspect"}).find("inspect: expected"), std::string::npos);
}

}  // namespace
}  // namespace triforce
