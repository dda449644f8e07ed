// Command lines as tests write them.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "options/command_line.h"

namespace triforce {

// The message of the usage error that parsing gives; empty if it gives none.
inline std::string usage_error(const std::vector<std::string>& args) {
  try {
    parse_command_line(args);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return "";
}

inline std::vector<Command> every_command() {
  std::vector<Command> all;
  for (const CommandInfo& c : command_table()) all.push_back(c.command);
  return all;
}

inline RunConfig parse(std::vector<std::string> args) {
  return parse_command_line(std::move(args)).config;
}

}  // namespace triforce
